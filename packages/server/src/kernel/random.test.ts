import fc from "fast-check";
import { expect, test } from "vitest";
import { type Random, systemRandom, uuid7 } from "./random.ts";

const UUID7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const LAST_TIME_MS = 2 ** 48 - 1;

test("an id is a UUID of version 7 that begins with its time, whatever chance gives", () => {
  const time = fc.integer({ min: 0, max: LAST_TIME_MS });
  const chance = fc.uint8Array({ minLength: 16, maxLength: 16 });
  fc.assert(
    fc.property(time, chance, (wallMs, bytes) => {
      const id = uuid7(always(bytes), wallMs);
      expect(id).toMatch(UUID7);
      expect(Number.parseInt(id.replaceAll("-", "").slice(0, 12), 16)).toBe(wallMs);
    }),
  );
});

test("an id made in a later millisecond sorts later", () => {
  const time = fc.integer({ min: 0, max: LAST_TIME_MS - 1 });
  fc.assert(
    fc.property(time, (wallMs) => {
      const earlier = uuid7(always(Buffer.alloc(16, 0xff)), wallMs);
      const later = uuid7(always(Buffer.alloc(16, 0)), wallMs + 1);
      expect(later > earlier).toBe(true);
    }),
  );
});

test("ids of one millisecond differ", () => {
  const ids = Array.from({ length: 1_000 }, () => uuid7(systemRandom, 1_700_000_000_000));
  expect(new Set(ids).size).toBe(1_000);
});

test("the system's chance gives as many bytes as asked, and fractions below 1", () => {
  expect(systemRandom.bytes(33)).toHaveLength(33);
  const fractions = Array.from({ length: 1_000 }, () => systemRandom.fraction());
  expect(fractions.every((fraction) => fraction >= 0 && fraction < 1)).toBe(true);
});

function always(bytes: Uint8Array): Random {
  return { bytes: () => Buffer.from(bytes), fraction: () => 0.5 };
}

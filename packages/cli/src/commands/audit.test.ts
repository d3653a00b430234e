import type { AuditRecord } from "@tenure/protocol";
import { expect, test } from "vitest";
import { drawAudit } from "./audit.ts";

// biome-ignore lint/suspicious/noControlCharactersInRegex: colours are control characters
const plain = (text: string): string => text.replace(/\u001b\[\d+m/g, "");

const entry = (fields: Partial<AuditRecord>): AuditRecord => ({
  id: 1,
  at: "2026-11-18T05:22:37.123Z",
  action: "deployment.rollback",
  outcome: "done",
  subject: "0193f0a0-0000-7000-8000-000000000000",
  actor: {
    name: "TENURE_TOKENS:1",
    role: "admin",
    tenant: "default",
    address: "2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff",
  },
  instance_id: "i-1",
  details: {},
  ...fields,
});

test("tenure audit fits 80 columns however long the names are, with a heading per day", () => {
  const entries = [
    entry({}),
    entry({ outcome: "DEPENDENCY_DOWN" }),
    entry({ at: "2026-11-19T00:00:00.000Z", action: "brake.release", subject: undefined }),
  ];
  // With colours, as CI has them, a cell that ends a line keeps its spaces.
  const lines = plain(drawAudit(entries))
    .split("\n")
    .map((line) => line.trimEnd());
  expect(lines).toEqual([
    "2026-11-18 (UTC)",
    "05:22:37  TENURE_TOKENS:1  2001:db8:a…ffff  deployment.rollback  0193f0a0-0…0000",
    "05:22:37  TENURE_TOKENS:1  2001:db8:a…ffff  deployment.rollback  0193f0a0-0…0000",
    "          DEPENDENCY_DOWN: outcome unknown, the change may have been made",
    "2026-11-19 (UTC)",
    "00:00:00  TENURE_TOKENS:1  2001:db8:a…ffff  brake.release",
  ]);
  for (const line of lines) expect(line.length).toBeLessThanOrEqual(80);
});

test("an escape sequence in a name is shown, not obeyed", () => {
  const { actor } = entry({});
  const drawn = plain(drawAudit([entry({ actor: { ...actor, name: "a\u001b]0;x\u0007" } })]));
  expect(drawn).not.toContain("\u001b");
});

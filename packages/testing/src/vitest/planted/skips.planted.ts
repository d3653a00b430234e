import { expect, test } from "vitest";

test("runs", () => expect(1 + 1).toBe(2));
test.skip("is skipped", () => expect(1 + 1).toBe(2));
test.todo("is not written yet");

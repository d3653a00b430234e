import type { Job } from "@tenure/protocol";
import { describe, expect, test } from "vitest";
import { createWatch, newSteps } from "./watch.ts";

const job = (n: number, fields: Partial<Job> = {}): Job => ({
  job_id: `00000000-0000-7000-8000-${String(n).padStart(12, "0")}`,
  request_id: `r-${n}`,
  pool: "asr",
  state: "CREATED",
  attempt_id: 1,
  created_at: "2026-01-31T12:00:00.000Z",
  timeline: [],
  ...fields,
});

describe("watching all jobs", () => {
  test("a job is returned once, and again when it changed", () => {
    const watch = createWatch();
    expect(watch([job(2), job(1)])).toEqual([job(1), job(2)]);
    expect(watch([job(2), job(1)])).toEqual([]);
    const running = job(1, { state: "RUNNING" });
    expect(watch([job(3), job(2), running])).toEqual([running, job(3)]);
  });

  test("an ended job is returned once, not again when its slot is released", () => {
    const watch = createWatch();
    const finished = job(1, { state: "FINISHED", outcome: "succeeded" });
    expect(watch([finished])).toEqual([finished]);
    expect(watch([{ ...finished, state: "RELEASED" }])).toEqual([]);
  });

  test("does not grow without end, and still knows the newest", () => {
    const watch = createWatch();
    for (let n = 0; n < 5_000; n++) expect(watch([job(n)])).toHaveLength(1);
    expect(watch([job(4_999), job(4_000)])).toEqual([]);
    expect(watch([job(1)])).toHaveLength(1);
  });
});

test("new steps of a job are returned once", () => {
  const at = "2026-01-31T12:00:00.000Z";
  const [created, finished] = (["CREATED", "FINISHED"] as const).map((state) => ({
    at,
    state,
    attempt_id: 1,
  }));
  const before = job(1, { timeline: [created!] });
  expect(newSteps(before, undefined)).toEqual([created]);
  expect(newSteps(before, before)).toEqual([]);
  expect(newSteps(job(1, { timeline: [created!, finished!] }), before)).toEqual([finished]);
});

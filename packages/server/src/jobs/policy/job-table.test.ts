import { JOB_STATES, type JobState } from "@tenure/protocol";
import { describe, expect, test } from "vitest";
import {
  cellOf,
  JOB_EVENTS,
  JOB_PLACES,
  type JobEvent,
  type JobPlace,
  rowText,
} from "./job-table.ts";

const BEFORE_FINISHED = ["CREATED", "DISPATCHED", "ACCEPTED", "RUNNING"] as const;

/** The design's table, row by row, as it is written there. */
const DESIGN: Record<JobEvent, { from: readonly JobPlace[]; to: JobState }> = {
  create: { from: ["ABSENT"], to: "CREATED" },
  dispatched: { from: ["CREATED"], to: "DISPATCHED" },
  ack: { from: ["DISPATCHED"], to: "ACCEPTED" },
  started: { from: ["DISPATCHED", "ACCEPTED"], to: "RUNNING" },
  result: { from: BEFORE_FINISHED, to: "FINISHED" },
  reassign: { from: BEFORE_FINISHED, to: "CREATED" },
  give_up: { from: BEFORE_FINISHED, to: "FINISHED" },
  released: { from: ["FINISHED"], to: "RELEASED" },
};

describe("the table of states", () => {
  test.each(JOB_EVENTS)("%s leads to the states of the design, and to no other", (event) => {
    const { from, to } = DESIGN[event];
    for (const place of JOB_PLACES) {
      const cell = cellOf(place, event);
      const changes = (JOB_STATES as readonly string[]).includes(cell);
      expect([place, changes]).toEqual([place, from.includes(place)]);
      if (changes) expect([place, cell]).toEqual([place, to]);
    }
  });

  test("a job never goes back but by a new attempt", () => {
    const order = (place: JobPlace) => JOB_PLACES.indexOf(place);
    for (const event of JOB_EVENTS) {
      if (event === "reassign") continue;
      for (const place of JOB_PLACES) {
        const cell = cellOf(place, event);
        if ((JOB_STATES as readonly string[]).includes(cell))
          expect(order(cell as JobState)).toBeGreaterThanOrEqual(order(place));
      }
    }
  });

  test("a row is written with one letter per state", () => {
    expect(rowText("started")).toBe("<44=!!");
    expect(rowText("result")).toBe("5555??");
    expect(rowText("released")).toBe("<<<<6=");
  });
});

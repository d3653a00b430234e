import { describe, expect } from "vitest";
import { admit, assign, JOB, received, resultAck, test } from "../../testing/worker-fixture.ts";

describe("a worker that was granted deferred_start", () => {
  const attempt = { job_id: JOB, attempt_id: 1 };

  test("reports only the result of a job in a pool that was fast twenty times, and a start after 20 ms", async ({
    peer,
    hire,
    clock,
  }) => {
    const hired = hire();
    const { socket, registered } = await admit(peer, hired, ["deferred_start"]);
    expect(registered.features).toEqual(["ack_lists", "deferred_start"]);
    const started = { type: "job_started", ...attempt, accepted_ms_ago: 0, started_ms_ago: 0 };
    const done = { type: "job_result", ...attempt, success: true, body: "done" };
    for (let job = 0; job < 20; job++) {
      socket.send(assign());
      expect(await received(socket)).toEqual(started);
      (await hired.runs.next()).resolve("done");
      expect(await received(socket)).toEqual(done);
      socket.send(resultAck());
    }
    socket.send(assign());
    const silent = await hired.runs.next();
    clock.advance(15);
    silent.resolve("done");
    const implied = { accepted_ms_ago: 15, started_ms_ago: 15 };
    expect(await received(socket)).toEqual({ ...done, ...implied });
    // Sent again, it says how long ago the steps are by then.
    clock.advance(6_000);
    const again = await received(socket);
    expect(again.started_ms_ago).toBeGreaterThanOrEqual(5_000);
    socket.send(resultAck());

    socket.send(assign());
    const slow = await hired.runs.next();
    clock.advance(20);
    expect(await received(socket)).toEqual({
      ...started,
      ...{ accepted_ms_ago: 20, started_ms_ago: 20 },
    });
    slow.resolve("done");
    expect(await received(socket)).toEqual(done);
    socket.send(resultAck());
    // The pool was slow once.
    socket.send(assign());
    expect(await received(socket)).toEqual(started);
    (await hired.runs.next()).resolve("done");
    expect(await received(socket)).toEqual(done);
  });

  test("does not ask for it with blocking: true", async ({ peer, hire }) => {
    const { registered } = await admit(peer, hire({ blocking: true }));
    expect(registered.features).toEqual(["ack_lists"]);
  });
});

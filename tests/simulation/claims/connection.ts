import type { CallParams, CallResult, HostEvent, NodeMethod } from "@tenure/protocol";
import type { Clock } from "@tenure/sdk";
import { planRetry } from "../../../packages/sdk/src/connection/retry.ts";
import { Members, type MembersView } from "../../../packages/sdk/src/worker/members.ts";
import type { Timeline } from "../timeline.ts";
import { createWire, type Way, type Wire } from "../wire.ts";
import { away } from "./answers.ts";
import type { Connected, Instance, Registration } from "./instance.ts";
import type { Settings } from "./settings.ts";

export interface NodeConnection {
  readonly state: "ready" | "waiting";
  readonly members: MembersView | undefined;
  readonly epoch: number | undefined;
  readonly instanceId: string | undefined;
  /** When the newest heartbeat of this connection was sent whose presence is in the store. */
  readonly contactMs: number | undefined;
  call<M extends NodeMethod>(method: M, params: CallParams<M>): Promise<CallResult<M>>;
  start(): void;
  /** The process is gone, and its kernel closes what it had open. */
  drop(): void;
}

export interface ConnectionOptions {
  timeline: Timeline;
  /** Of this process: it stands still while the process does. */
  clock: Clock;
  /** Lets something happen in this process, now or when it goes on. */
  enter: (act: () => void) => void;
  random: () => number;
  settings: Settings;
  registration: Registration;
  instances: readonly Instance[];
  latencyMs: () => number;
  isCut: (instance: string, way: Way) => boolean;
  /** Whether a host event is missed. */
  isMissed: () => boolean;
  on: {
    ready(): void;
    replaced(): void;
    members(): void;
    changed(): void;
    contact(atMs: number): void;
  };
}

const HANDSHAKE_LIMIT_MS = 10_000;

/** A node's way to its instance, with the numbers, time limits and retries of the SDK and none of its sockets. */
export function createConnection(options: ConnectionOptions): NodeConnection {
  const { timeline, clock, enter, random, settings, instances, on } = options;
  let line: Line | undefined;
  let failures = 0;
  let isOver = false;

  interface Line {
    wire: Wire;
    instance: Instance;
    server: Connected | undefined;
    epoch: number | undefined;
    readyMs: number | undefined;
    contactMs: number | undefined;
    heardMs: number;
    heardUpMs: number;
    pending: Set<(reason: Error) => void>;
    isClosedAbove: boolean;
  }

  const members = new Members({
    clock,
    random,
    list: () => call("member.list", {}),
    changed: () => on.members(),
    problem: () => {},
  });

  function connect(): void {
    const instance = instances[Math.floor(random() * instances.length)]!;
    const wire: Wire = createWire({
      timeline,
      latencyMs: options.latencyMs,
      isCut: (way) => options.isCut(instance.id, way),
      closed: (way) => (way === "up" ? closedAbove(mine) : enter(() => lost(mine, "lost"))),
    });
    const mine: Line = {
      wire,
      instance,
      server: undefined,
      epoch: undefined,
      readyMs: undefined,
      contactMs: undefined,
      heardMs: clock.monotonicMs(),
      heardUpMs: timeline.monotonicMs(),
      pending: new Set(),
      isClosedAbove: false,
    };
    line = mine;
    wire.send("up", () => void register(mine));
    clock.after(HANDSHAKE_LIMIT_MS, () => mine.readyMs === undefined && lost(mine, "late"));
  }

  // The server's end.

  async function register(mine: Line): Promise<void> {
    const { wire, instance } = mine;
    if (!instance.isAlive) return wire.close("down");
    const server = await instance.join(options.registration, {
      hostEvent: (event) => tellDown(mine, event),
      deploymentsChanged: () => wire.send("down", () => enter(() => on.changed())),
      close: () => closeAbove(mine),
    });
    if (!server) {
      wire.send("down", () => enter(() => lost(mine, "replaced")));
      return wire.close("down");
    }
    mine.server = server;
    if (mine.isClosedAbove) return server.left();
    wire.send("down", () => enter(() => ready(mine, server.epoch)));
    server.introduce();
    watchAbove(mine);
  }

  function tellDown(mine: Line, event: HostEvent): void {
    if (options.isMissed()) return;
    mine.wire.send("down", () =>
      enter(() => {
        if (line !== mine) return;
        mine.heardMs = clock.monotonicMs();
        members.receive(event);
      }),
    );
  }

  function watchAbove(mine: Line): void {
    timeline.after(settings.pingEveryMs, () => {
      if (mine.isClosedAbove) return;
      const silentMs = timeline.monotonicMs() - mine.heardUpMs;
      if (silentMs < 2 * settings.pingEveryMs) return watchAbove(mine);
      mine.wire.close("down");
      closedAbove(mine);
    });
  }

  function closeAbove(mine: Line): void {
    mine.wire.close("down");
    closedAbove(mine);
  }

  function closedAbove(mine: Line): void {
    if (mine.isClosedAbove) return;
    mine.isClosedAbove = true;
    mine.server?.left();
  }

  // The node's end.

  function ready(mine: Line, epoch: number): void {
    if (line !== mine || isOver) return;
    mine.epoch = epoch;
    mine.readyMs = clock.monotonicMs();
    mine.heardMs = mine.readyMs;
    beat(mine);
    on.ready();
  }

  function beat(mine: Line): void {
    if (line !== mine || isOver) return;
    if (clock.monotonicMs() - mine.heardMs >= 2 * settings.pingEveryMs) {
      lost(mine, "silent");
      return;
    }
    const sentMs = clock.monotonicMs();
    mine.wire.send("up", () => {
      mine.heardUpMs = timeline.monotonicMs();
      mine.wire.send("down", () => enter(() => heard(mine)));
      void mine.server?.heartbeat().then((isPresent) => {
        if (isPresent) mine.wire.send("down", () => enter(() => contacted(mine, sentMs)));
      });
    });
    clock.after(settings.heartbeatIntervalMs, () => beat(mine));
  }

  function contacted(mine: Line, sentMs: number): void {
    if (line !== mine) return;
    mine.contactMs = sentMs;
    on.contact(sentMs);
  }

  function heard(mine: Line): void {
    mine.heardMs = clock.monotonicMs();
  }

  function lost(mine: Line, kind: "lost" | "late" | "silent" | "replaced"): void {
    if (line !== mine || isOver) return;
    line = undefined;
    mine.wire.close("up");
    for (const reject of mine.pending) reject(away("the connection is gone"));
    members.down();
    if (kind === "replaced") on.replaced();
    const readyForMs = mine.readyMs === undefined ? undefined : clock.monotonicMs() - mine.readyMs;
    const plan = planRetry(
      { kind, reason: kind },
      { failures, readyForMs, askedMs: 0, random: random() },
    );
    failures = plan.failures;
    clock.after(plan.waitMs, () => !isOver && !line && connect());
  }

  function call<M extends NodeMethod>(method: M, params: CallParams<M>): Promise<CallResult<M>> {
    const mine = line;
    if (mine?.epoch === undefined) return Promise.reject(away("there is no connection"));
    return new Promise((resolve, reject) => {
      const fail = (reason: unknown) => {
        mine.pending.delete(fail);
        cancel();
        reject(reason);
      };
      const cancel = clock.after(settings.callTimeoutMs, () => fail(away("no answer in time")));
      mine.pending.add(fail);
      const back = (act: () => void) => mine.wire.send("down", () => enter(act));
      mine.wire.send("up", () => {
        mine.heardUpMs = timeline.monotonicMs();
        mine.server?.call(method, params).then(
          (result) =>
            back(() => {
              if (!mine.pending.delete(fail)) return;
              cancel();
              resolve(result);
            }),
          (error: unknown) => back(() => mine.pending.has(fail) && fail(error)),
        );
      });
    });
  }

  return {
    get state() {
      return line?.epoch === undefined ? "waiting" : "ready";
    },
    get members() {
      return members.current;
    },
    get epoch() {
      return line?.epoch;
    },
    get contactMs() {
      return line?.contactMs;
    },
    get instanceId() {
      return line?.instance.id;
    },
    call,
    start: connect,
    drop() {
      isOver = true;
      line?.wire.close("up");
      line = undefined;
    },
  };
}

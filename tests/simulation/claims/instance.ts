import type {
  CallParams,
  CallResult,
  HostEvent,
  NodeMethod,
  ResourceUsage,
  TenureError,
  ViewState,
} from "@tenure/protocol";
import type { Wake } from "../../../packages/server/src/deployments/cache/wake.ts";
import type { NewNodeUnit } from "../../../packages/server/src/membership/store/node-unit-store.ts";
import type { Timeline } from "../timeline.ts";
import { createAnswers } from "./answers.ts";
import type { Arbiter } from "./arbiter.ts";
import { createCopy } from "./copy.ts";
import type { Settings } from "./settings.ts";
import { createView, type ViewLook } from "./view.ts";

/** What an instance can do to a node that is connected to it. */
export interface NodeLink {
  hostEvent(event: HostEvent): void;
  deploymentsChanged(): void;
  close(): void;
}

/** A node that an instance has let in. */
export interface Connected {
  readonly epoch: number;
  introduce(): void;
  heartbeat(): Promise<boolean>;
  call<M extends NodeMethod>(method: M, params: CallParams<M>): Promise<CallResult<M>>;
  left(): void;
}

export interface Instance {
  readonly id: string;
  readonly isAlive: boolean;
  readonly view: ViewState;
  start(): void;
  /** All at once, as kill -9 does it: nobody is told, and nothing it was about to do happens. */
  kill(): void;
  /** As SIGTERM does it: presence is set ahead, and the nodes are sent away. */
  stop(): void;
  /** `undefined`: another process still answers under this address. */
  join(registration: Registration, link: NodeLink): Promise<Connected | undefined>;
}

export type Registration = Omit<NewNodeUnit, "instance_id" | "epoch">;

/** A statement, there and back. */
export type Store = <T>(statement: () => T) => Promise<T>;

export interface InstanceOptions {
  id: string;
  timeline: Timeline;
  arbiter: Arbiter;
  settings: Settings;
  /** How long a statement takes on its way. */
  storeMs: () => number;
  /** Whether a word from Postgres that something changed gets lost. */
  isDeaf: () => boolean;
  samples: () => Record<string, ResourceUsage>;
  /** Every call a node makes, and what became of it. */
  onCall: (method: NodeMethod, outcome: string) => void;
  /** A planted bug: releases while it cannot know who is there. */
  releasesWhileSettling?: boolean;
}

interface Held {
  link: NodeLink;
  epoch: number;
  introduced: boolean;
}

/** One process, from its start to its end. */
interface Life {
  held: Map<string, Held>;
  view(): ViewState;
  woken: { deployments(): void; members(): void };
  join: Instance["join"];
  isStopping: boolean;
}

/** A server, as far as node-units see it. */
export function createInstance(options: InstanceOptions): Instance {
  const { id, arbiter, settings } = options;
  let boots = 0;
  let life: Life | undefined;
  arbiter.deployments.onChange(() => life?.woken.deployments());
  arbiter.nodes.onChange(() => life?.woken.members());

  function end(): void {
    const ended = life;
    life = undefined;
    for (const { link } of ended?.held.values() ?? []) link.close();
  }

  return {
    id,
    get isAlive() {
      return life !== undefined;
    },
    get view() {
      return life?.view() ?? "settling";
    },
    start() {
      if (life) return;
      const mine: Life = begin(options, `${id}-${++boots}`, () => life === mine);
      life = mine;
    },
    kill: end,
    stop() {
      if (!life) return;
      life.isStopping = true;
      for (const [address, { epoch }] of life.held)
        arbiter.nodes.renew({ address, epoch }, settings.presenceTtlMs);
      end();
    },
    join: (registration, link) => life?.join(registration, link) ?? never(),
  };
}

function begin(options: InstanceOptions, origin: string, isAlive: () => boolean): Life {
  const { id, timeline, arbiter, settings, storeMs } = options;
  const { presenceTtlMs } = settings;
  const held = new Map<string, Held>();

  /** Whoever dies while a statement is on its way never hears what became of it. */
  async function store<T>(statement: () => T): Promise<T> {
    await timeline.sleep(storeMs());
    if (!isAlive()) return never();
    const answer = statement();
    await timeline.sleep(storeMs());
    return isAlive() ? answer : never();
  }

  const copy = createCopy({ arbiter, store, wake });
  const view = createView({ arbiter, store, timeline, presenceTtlMs, onLook });
  const answer = createAnswers({
    ...{ origin, arbiter, store, copy },
    view: () => view.current().view,
    samples: options.samples,
    refused: () => new Map(),
    trustsCallers: settings.trustsCallers,
    releasesWhileSettling: options.releasesWhileSettling ?? false,
  });

  function wake(wakes: Wake[]): void {
    const wakesAll = wakes.some((one) => one.all);
    const named = new Set(wakes.flatMap(({ nodes }) => nodes));
    for (const [address, { link }] of held)
      if (wakesAll || named.has(address)) link.deploymentsChanged();
  }

  function onLook(look: ViewLook): void {
    for (const { address, epoch } of look.rows) {
      const node = held.get(address);
      if (!node || epoch <= node.epoch) continue;
      held.delete(address);
      node.link.close();
    }
    for (const { link, introduced } of held.values()) {
      if (!introduced) continue;
      for (const change of look.changes)
        link.hostEvent({
          type: "host_event",
          event: "TERMINAL_CHANGE",
          view: look.view,
          ...change,
        });
    }
  }

  async function join(reader: Registration, link: NodeLink): Promise<Connected | undefined> {
    const { address } = reader;
    const epoch = await store(() => arbiter.nodes.nextEpoch());
    const unit = { ...reader, instance_id: id, epoch };
    if (!(await store(() => arbiter.nodes.join(unit, presenceTtlMs)))) return undefined;
    const node: Held = { link, epoch, introduced: false };
    const former = held.get(address);
    held.set(address, node);
    former?.link.close();
    const caller = { address, epoch, reader };
    return {
      epoch,
      introduce() {
        node.introduced = true;
        link.hostEvent({ type: "host_event", event: "INIT", ...view.current() });
      },
      heartbeat: () => store(() => arbiter.nodes.renew(caller, presenceTtlMs)),
      call: (method, params) =>
        counted(
          method,
          method === "member.list"
            ? Promise.resolve(view.current())
            : answer(caller, method, params),
        ),
      left() {
        if (held.get(address) === node) held.delete(address);
        if (!me.isStopping) void store(() => arbiter.nodes.leave(caller));
      },
    };
  }

  async function counted(method: NodeMethod, answered: Promise<unknown>): Promise<never> {
    try {
      const result = await answered;
      options.onCall(method, "ok");
      return result as never;
    } catch (error) {
      options.onCall(method, (error as TenureError).code);
      throw error;
    }
  }

  function every(ms: number, act: () => Promise<unknown>): void {
    timeline.after(ms, () => {
      if (!isAlive()) return;
      void act();
      every(ms, act);
    });
  }

  /** One look for however many changes come while it is on its way. */
  function gathered(look: () => Promise<void>): () => void {
    let isComing = false;
    return () => {
      if (isComing || options.isDeaf()) return;
      isComing = true;
      timeline.after(storeMs(), () => {
        isComing = false;
        if (isAlive()) void look();
      });
    };
  }

  const me: Life = {
    held,
    view: () => view.current().view,
    woken: { deployments: gathered(copy.refresh), members: gathered(view.look) },
    join,
    isStopping: false,
  };
  void copy.refresh();
  void view.look();
  every(settings.copyIntervalMs, copy.refresh);
  every(settings.refreshIntervalMs, view.look);
  every(settings.movesIntervalMs, () => store(() => arbiter.dropDeadMoves()));
  return me;
}

const never = (): Promise<never> => new Promise(() => {});

import { createServer, connect as dial, type Socket } from "node:net";
import { freePort } from "./free-port.ts";
import { createPump, type Faults, noFaults, type Pump } from "./proxy-pump.ts";

/** `up` is from the client to the target. */
export type Direction = "up" | "down";

export interface FaultProxy {
  readonly host: string;
  readonly port: number;
  /** How many are open now. */
  readonly connections: number;
  /** How many of these have lost bytes, or the end of a stream. */
  readonly damaged: number;
  /** Every byte arrives that much later; the order stays. */
  delay(ms: number, direction?: Direction | "both"): void;
  /**
   * Bytes, and the end of the stream, are swallowed; connections stay open and new ones are taken.
   * Like a network that drops packets.
   */
  blackHole(direction: Direction | "both"): void;
  /**
   * All open connections swallow everything from now on, without a reset; new ones work. Like a middlebox that
   * forgot its idle flows, or a cut that lasted until TCP retransmits rarely.
   */
  forget(): void;
  slow(bytesPerSecond: number, direction?: Direction | "both"): void;
  /** RST on both sides of all connections. New ones work. */
  reset(): void;
  /** New connections are refused; open ones go on. */
  refuse(): void;
  /**
   * Ends all faults. A connection that has lost bytes is reset, since TCP never delivers a stream
   * with a hole in it; one that was idle meanwhile goes on.
   */
  heal(): Promise<void>;
  /**
   * The next reply that matches, and all that follows on its connection, never reaches the client:
   * the request ran, the caller waits. Resolves when it has happened.
   */
  dropNextReply(matches?: (reply: Buffer) => boolean): Promise<void>;
  /**
   * The next request that matches reaches the target; when the target answers, the connection is
   * reset instead. Resolves when it has happened.
   */
  cutAfter(matches: (request: Buffer) => boolean): Promise<void>;
  stop(): void;
}

/** A TCP proxy on a free loopback port that does to connections what a network may do. */
export async function startProxy(options: {
  targetPort: number;
  targetHost?: string;
  /** Where it listens; loopback if not given. */
  host?: string | undefined;
}): Promise<FaultProxy> {
  const { targetPort, targetHost = "127.0.0.1", host = "127.0.0.1" } = options;
  const trouble: Trouble = {
    up: { ...noFaults },
    down: { ...noFaults },
    cuts: createTraps(),
    drops: createTraps(),
  };
  const connections = new Set<Connection>();
  const server = createServer(socketOptions, (client) => {
    const target = dial({ port: targetPort, host: targetHost, ...socketOptions });
    const connection = connectThrough(client, target, trouble);
    connections.add(connection);
    for (const socket of [client, target]) {
      socket.on("close", () => {
        if (client.destroyed && target.destroyed) connections.delete(connection);
      });
    }
  });
  const port = await freePort();
  const listen = () => new Promise<void>((resolve) => server.listen(port, host, resolve));
  await listen();

  function set(direction: Direction | "both", fault: Partial<Faults>): void {
    if (direction !== "down") Object.assign(trouble.up, fault);
    if (direction !== "up") Object.assign(trouble.down, fault);
  }

  function resetWhere(isChosen: (connection: Connection) => boolean): void {
    for (const connection of [...connections].filter(isChosen)) resetBoth(connection);
  }

  return {
    host,
    port,
    get connections() {
      return connections.size;
    },
    get damaged() {
      return [...connections].filter(isDamaged).length;
    },
    delay: (ms, direction = "both") => set(direction, { delayMs: ms }),
    blackHole: (direction) => set(direction, { swallow: true }),
    forget() {
      for (const { up, down } of connections) {
        up.lose();
        down.lose();
      }
    },
    slow: (bytesPerSecond, direction = "both") => set(direction, { bytesPerSecond }),
    reset: () => resetWhere(() => true),
    refuse: () => void server.close(),
    async heal() {
      set("both", noFaults);
      trouble.cuts.clear();
      trouble.drops.clear();
      resetWhere(isDamaged);
      if (!server.listening) await listen();
    },
    dropNextReply: (matches = () => true) => trouble.drops.arm(matches),
    cutAfter: (matches) => trouble.cuts.arm(matches),
    stop() {
      server.close();
      resetWhere(() => true);
    },
  };
}

// Half open: one side may end its stream and still read the other's.
const socketOptions = { allowHalfOpen: true, noDelay: true };

interface Trouble extends Record<Direction, Faults> {
  cuts: Traps;
  drops: Traps;
}

interface Connection {
  client: Socket;
  target: Socket;
  up: Pump;
  down: Pump;
}

const isDamaged = ({ up, down }: Connection): boolean => up.hasLost || down.hasLost;

function connectThrough(client: Socket, target: Socket, trouble: Trouble): Connection {
  let cut: Trap | undefined;

  const inspectRequest = (bytes: Buffer) => {
    cut ??= trouble.cuts.take(bytes);
    return "pass" as const;
  };
  const inspectReply = (bytes: Buffer) => {
    const sprung = cut ?? trouble.drops.take(bytes);
    if (sprung === undefined) return "pass";
    if (sprung === cut) resetBoth({ client, target });
    sprung.happened();
    return "swallow";
  };

  const [up, down] = [
    createPump({ from: client, to: target, faults: trouble.up, inspect: inspectRequest }),
    createPump({ from: target, to: client, faults: trouble.down, inspect: inspectReply }),
  ];
  return { client, target, up, down };
}

function resetBoth({ client, target }: Pick<Connection, "client" | "target">): void {
  client.resetAndDestroy();
  target.resetAndDestroy();
}

interface Trap {
  matches: (bytes: Buffer) => boolean;
  happened: () => void;
}

interface Traps {
  arm(matches: Trap["matches"]): Promise<void>;
  /** The first trap these bytes spring; it is gone from then on. */
  take(bytes: Buffer): Trap | undefined;
  clear(): void;
}

function createTraps(): Traps {
  const armed = new Set<Trap>();
  return {
    arm: (matches) => new Promise((happened) => armed.add({ matches, happened })),
    take(bytes) {
      const sprung = [...armed].find((trap) => trap.matches(bytes));
      if (sprung !== undefined) armed.delete(sprung);
      return sprung;
    },
    clear: () => armed.clear(),
  };
}

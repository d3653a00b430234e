import { execFileSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { identify, isAlive, type ProcessIdentity } from "./proc.ts";

/** A network namespace with links of its own to this one: a machine, as far as the network goes. */
export interface TestHost {
  links: readonly HostLink[];
  /** The same program, on that host. */
  wrap<Spec extends { command: string; args?: string[] }>(spec: Spec): Spec;
  discard(): void;
}

export interface HostLink {
  /** Our address on the link, and the host's. */
  readonly here: string;
  readonly there: string;
  /** Packets are lost both ways from now on, without a word to either side. */
  cut(): void;
  heal(): void;
}

const PREFIX = "tenure-test";
// Of no card: what is sent there arrives nowhere, and the sender is not told.
const NO_CARD = "02:00:00:00:00:fe";

/** Undefined where this process may not make one: that takes root. */
export function createHost(links: number): TestHost | undefined {
  const { pid, startTicks } = identify(process.pid) as ProcessIdentity;
  const id = randomInt(2 ** 24).toString(16);
  const name = `${PREFIX}.${pid}.${startTicks}.${id}`;
  if (!tried("ip", "netns", "add", name)) return undefined;
  mine.add(name);
  const inside = (...args: string[]) => run("ip", "-n", name, ...args);
  try {
    inside("link", "set", "lo", "up");
    const made = Array.from({ length: links }, (_, n) =>
      createLink(`${id}-${n}`, { name, inside }),
    );
    // By the last link it reaches all our addresses, also those of links of other hosts.
    inside("route", "add", "default", "via", made.at(-1)!.here);
    return {
      links: made,
      wrap: (spec) => ({
        ...spec,
        command: "nsenter",
        args: [`--net=/var/run/netns/${name}`, spec.command, ...(spec.args ?? [])],
      }),
      discard: () => discard(name),
    };
  } catch {
    discard(name); // a namespace, but no link: as good as none
    return undefined;
  }
}

function createLink(
  id: string,
  { name, inside }: { name: string; inside: (...args: string[]) => void },
): HostLink {
  const net = randomInt(2 ** 21); // of 10.128.0.0/9, four addresses each
  const address = (last: number) => {
    const value = net * 4 + last;
    return `10.${128 + (value >> 16)}.${(value >> 8) & 255}.${value & 255}`;
  };
  const [here, there] = [address(1), address(2)];
  const ends = { here: `tt${id}h`, there: `tt${id}t` };
  run("ip", "link", "add", ends.here, "type", "veth", "peer", "name", ends.there, "netns", name);
  run("ip", "addr", "add", `${here}/30`, "dev", ends.here);
  run("ip", "link", "set", ends.here, "up");
  inside("addr", "add", `${there}/30`, "dev", ends.there);
  inside("link", "set", ends.there, "up");
  const neighbours = (...args: string[]) => {
    run("ip", "neigh", args[0]!, there, "dev", ends.here, ...args.slice(1));
    inside("neigh", args[0]!, here, "dev", ends.there, ...args.slice(1));
  };
  return {
    here,
    there,
    cut: () => neighbours("replace", "lladdr", NO_CARD, "nud", "permanent"),
    heal: () => neighbours("del"),
  };
}

const mine = new Set<string>();

/** Those of this process, when it ends. */
export function discardMyHosts(): void {
  for (const name of mine) discard(name);
}

/** Its links go with it. */
function discard(name: string): void {
  mine.delete(name);
  tried("ip", "netns", "del", name);
}

/** What a run that was killed has left behind. */
export function discardOrphanedHosts(): void {
  for (const name of namespaces()) {
    const [, pid, startTicks] = /^tenure-test\.(\d+)\.(\d+)\./.exec(name) ?? [];
    if (pid === undefined) continue;
    if (!isAlive({ pid: Number(pid), startTicks: Number(startTicks) })) discard(name);
  }
}

function namespaces(): string[] {
  try {
    const listed = execFileSync("ip", ["netns", "list"], { encoding: "utf8", stdio: "pipe" });
    return listed.split("\n").map((line) => line.split(" ")[0] ?? "");
  } catch {
    return []; // no ip, no namespaces of ours
  }
}

function run(command: string, ...args: string[]): void {
  execFileSync(command, args, { stdio: "pipe" });
}

function tried(command: string, ...args: string[]): boolean {
  try {
    run(command, ...args);
    return true;
  } catch {
    return false;
  }
}

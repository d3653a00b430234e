import { WebSocket } from "ws";
import { prepareNullUnits, untilAllSee } from "./null-units.ts";
import { readSharedFrame, SharedMemberMap, sharingCounts } from "./shared-reading.ts";

// A part of a large fleet. Arguments: the server's URL, the number of the first node-unit, how many, how many there are in
// the whole fleet, a directory for their keys, and `shared` when they share what is the same for all. Reports when their keys
// exist, starts them when it is asked to, reports when all are connected and when all have seen the fleet, and answers
// `counts` with its counts.

export interface FleetUnitsCounts {
  /** Registrations, those after a loss included. */
  registered: number;
  /** Frames from the server, and their bytes. */
  frames: number;
  bytes: number;
  /** Of these frames, those that were parsed for another node-unit already. */
  reused: number;
  cpuMs: number;
}
export type FleetUnitsReport =
  | { kind: "prepared" | "connected" | "seen" }
  | ({ kind: "counts" } & FleetUnitsCounts);

const [url = "", first = "0", count = "0", fleet = "0", directory = "", reading = ""] =
  process.argv.slice(2);
const report = (message: FleetUnitsReport) => process.send?.(message);
let registered = 0;
let frames = 0;
let bytes = 0;

/** A machine of its own answers a ping while another one parses: here frames wait, so that the process does. */
const SLICE_MS = 10;
let waiting: (() => void)[] = [];
const { emit } = WebSocket.prototype;
WebSocket.prototype.emit = function counted(this: WebSocket, event: string | symbol, ...args) {
  if (event === "message") {
    frames += 1;
    bytes += (args[0] as Buffer).length;
  }
  // A close follows the frames before it, which may say why.
  if (reading !== "shared" || (event !== "message" && event !== "close"))
    return emit.call(this, event, ...args);
  if (waiting.push(() => emit.call(this, event, ...args)) === 1) setImmediate(handle);
  return true;
} as typeof emit;

function handle(): void {
  const endMs = performance.now() + SLICE_MS;
  let handled = 0;
  while (handled < waiting.length && performance.now() < endMs) waiting[handled++]!();
  waiting = waiting.slice(handled);
  if (waiting.length > 0) setImmediate(handle);
}

const start = await prepareNullUnits({
  ...{ url, first: Number(first), count: Number(count), directory },
  onReady() {
    registered += 1;
    if (registered === Number(count)) report({ kind: "connected" });
  },
  tuning: () =>
    reading === "shared" ? { readFrame: readSharedFrame, memberMap: new SharedMemberMap() } : {},
});
process.on("message", (message) => {
  if (message === "counts") reportCounts();
  else void run();
});
process.on("disconnect", () => process.exit(0));
report({ kind: "prepared" });

function reportCounts(): void {
  const { user, system } = process.cpuUsage();
  const cpuMs = (user + system) / 1_000;
  report({ kind: "counts", registered, frames, bytes, reused: sharingCounts.reused, cpuMs });
}

async function run(): Promise<void> {
  const agents = await start();
  await untilAllSee(agents, Number(fleet));
  report({ kind: "seen" });
}

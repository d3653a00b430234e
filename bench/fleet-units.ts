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

const { emit } = WebSocket.prototype;
WebSocket.prototype.emit = function counted(this: WebSocket, event: string | symbol, ...args) {
  if (event === "message") {
    frames += 1;
    bytes += (args[0] as Buffer).length;
  }
  return emit.call(this, event, ...args);
} as typeof emit;

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

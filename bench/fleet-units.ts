import { WebSocket } from "ws";
import { startNullUnits, untilAllSee } from "./null-units.ts";

// A part of a large fleet. Arguments: the server's URL, the number of the first node-unit, how many, how many there are in
// the whole fleet, a directory for their keys. Reports when all are connected and when all have seen the fleet, and answers
// each message with its counts.

export interface FleetUnitsCounts {
  /** Registrations, those after a loss included. */
  registered: number;
  /** Frames from the server, and their bytes. */
  frames: number;
  bytes: number;
  cpuMs: number;
}
export type FleetUnitsReport =
  | { kind: "connected" | "seen" }
  | ({ kind: "counts" } & FleetUnitsCounts);

const [url = "", first = "0", count = "0", fleet = "0", directory = ""] = process.argv.slice(2);
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

process.on("message", () => {
  const { user, system } = process.cpuUsage();
  report({ kind: "counts", registered, frames, bytes, cpuMs: (user + system) / 1_000 });
});
process.on("disconnect", () => process.exit(0));

const agents = await startNullUnits({
  ...{ url, first: Number(first), count: Number(count), directory },
  onReady() {
    registered += 1;
    if (registered === Number(count)) report({ kind: "connected" });
  },
});
await untilAllSee(agents, Number(fleet));
report({ kind: "seen" });

// What a deployment of the fault suite runs: it says that it lives, again and again, into a history of its own.
//
//   node child.js <directory of the histories> <workload> [<ms it takes to stop>]
//
// With the third argument it never ends by itself and always stops in that time; without it both are left to chance.
import { appendFileSync } from "node:fs";
import { join } from "node:path";

const BEAT_MS = 100;

const [, , directory = "", workload = "", stopMs] = process.argv;
const { TENURE_DEPLOYMENT_ID: id, TENURE_FENCING_TOKEN: generation } = process.env;
// A pid may come twice in a long run.
const name = `child-${process.pid}-${process.hrtime.bigint()}`;
const file = join(directory, `${workload}.${name}.jsonl`);
const value = { id, generation: Number(generation), pid: process.pid, directory: process.cwd() };
let index = 0;

function beat() {
  const event = {
    index: index++,
    time: Number(process.hrtime.bigint()),
    process: name,
    type: "info",
    f: "alive",
    value,
  };
  appendFileSync(file, `${JSON.stringify(event)}\n`);
}

beat();
setInterval(beat, BEAT_MS);
// Some end by themselves now and then, and have to be started again.
if (stopMs === undefined && Math.random() < 0.2)
  setTimeout(() => process.exit(1), 2_000 + Math.random() * 8_000);
process.once("SIGTERM", () => {
  if (stopMs !== undefined) return setTimeout(() => process.exit(0), Number(stopMs));
  // Some take their time, and some do not go until they are made to.
  const manner = Math.random();
  if (manner < 0.1) return;
  setTimeout(() => process.exit(0), manner < 0.3 ? 300 : 0);
});

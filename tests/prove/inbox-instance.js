// An instance that does nothing but deliver: present in Redis, reading its inbox, adopting those of the dead.
//
//   node inbox-instance.js <directory of the built server> <options as JSON>
//
// The effect of a message is a count in Redis, so that it outlives this process. A message of an attempt older
// than the one on record has none.
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , serverDirectory, optionsText] = process.argv;
/** @param {string} file */
const load = (file) => import(pathToFileURL(join(String(serverDirectory), file)).href);
const [{ openRedis, waitUntilReady }, { announcePresence }, { createDelivery }] = await Promise.all(
  [
    load("store/redis.js"),
    load("membership/store/presence-store.js"),
    load("delivery/delivery.js"),
  ],
);
const [{ systemClock }, { createLog }, { createTelemetry }] = await Promise.all([
  load("kernel/clock.js"),
  load("kernel/log.js"),
  load("telemetry.js"),
]);

const { instanceId, redis, settings, presenceTtlMs, keys } = JSON.parse(String(optionsText));
const store = openRedis(redis);
await waitUntilReady(store, 10_000);

const EFFECT = `
  local current = tonumber(redis.call('HGET', KEYS[1], ARGV[1]))
  if tonumber(ARGV[2]) < current then
    redis.call('HINCRBY', KEYS[2], ARGV[1], 1)
    return 'superseded'
  end
  redis.call('HINCRBY', KEYS[3], ARGV[1], 1)
  return 'done'`;

const delivery = createDelivery({
  store,
  instanceId,
  settings,
  clock: systemClock,
  log: createLog("error"),
  telemetry: createTelemetry(),
  /** @param {{ kind: string, job_id: string, attempt_id: number }} message */
  async receive({ kind, job_id, attempt_id }) {
    if (kind === "poison") return "retry";
    const { attempts, superseded, effects } = keys;
    return store.client.eval(EFFECT, 3, attempts, superseded, effects, job_id, attempt_id);
  },
  route: async () => ({ to: await store.client.get(keys.owner) }),
});

const term = { instanceId, bootId: randomUUID() };
await announcePresence(store, term, presenceTtlMs);
setInterval(() => {
  announcePresence(store, term, presenceTtlMs).catch(() => {});
}, presenceTtlMs / 3);
delivery.start();
process.stdout.write("reading\n");
process.once("SIGTERM", async () => {
  await delivery.stop();
  await store.close();
  process.exit(0);
});

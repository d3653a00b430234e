import { call, withClient } from "@tenure/testing/fleet/nonce-fleet";
import type { RecordedEvent } from "@tenure/testing/history";
import { until } from "@tenure/testing/until";
import { Cluster, Redis } from "ioredis";
import { checkAtRest, checkTerms, type Departure, type NodeUnitState } from "../checkers/terms.ts";
import type { Scene, Workload } from "../workload.ts";
import { createCaller } from "./callers.ts";
import {
  contactsOf,
  downsOf,
  keyOf,
  type RecordedNode,
  registrationsOf,
  startRecordedNode,
} from "./node-unit.ts";

const NODES = 4;
/** Under this key a second process knocks again and again. */
const CONTESTED = 1;

interface MemberStores {
  rows: NodeUnitState[];
  departures: Departure[];
  owners: Record<string, number>;
}

/** The terms of connections, on which I1 and I10 rest: nodes that come, go, come back and meet their twins. */
export const members: Workload = {
  name: "members",
  promises: "I1, I11 (terms of connections)",
  clients: 2,
  uses: ["hosts"],
  survivesHotLoss: true,
  async load({ scene, history, quiet }) {
    const start = (name: string, key: string): RecordedNode =>
      startRecordedNode({
        name: `${scene.name}#${scene.start}/${name}`,
        key: keyOf(key),
        urls: rotated(scene.urls, name.length + scene.start),
        history,
        describe: { claim_policy: "none" },
      });
    for (let index = 0; index < NODES; index++) start(`node-${index}`, nameOf(scene, index));
    const caller = createCaller(`${scene.name}#${scene.start}`, scene.seed, quiet);
    // The twin of a node of the other process: mostly refused, let in when that one is lost, gone again soon.
    const other = { ...scene, name: scene.name.replace(/\d$/, (n) => String(1 - Number(n))) };
    for (let visit = 0; !quiet.aborted; visit++) {
      const twin = start(`twin-${visit}`, nameOf(other, CONTESTED));
      await caller.pause(2_000, 9_000);
      await twin.connection.close();
      await caller.pause(500, 2_000);
    }
  },
  async settle({ scene, deadlineMs }) {
    const expected = expectedAddresses(scene);
    for (const url of scene.urls) {
      await until(
        async () => {
          const { body } = await call(url, "/nodes?limit=500");
          const online = new Set(
            body.items
              .filter((node: { online: boolean }) => node.online)
              .map((node: { node_id: string }) => node.node_id),
          );
          const missing = expected.filter((address) => !online.has(address));
          if (missing.length > 0) throw new Error(`${missing.length} nodes are not online`);
          return true;
        },
        { deadlineMs, everyMs: 200, what: `all nodes at ${url}` },
      );
    }
    const settled = async () => {
      const { rows, owners } = await read(scene);
      return expected.every((address) => {
        const row = rows.find((each) => each.address === address);
        return row?.online && owners[address] === row.epoch;
      });
    };
    await until(settled, { deadlineMs, everyMs: 200, what: "rows and owner keys to agree" });
  },
  hazards: {
    reconnects: ["edge-reset", "instance.kill"],
    addresses_taken_over: ["members.kill:6000", "members.hosts-partition:14000"],
  },
  read,
  check(events: RecordedEvent[], { rows, departures, owners }: MemberStores, scene) {
    const registrations = registrationsOf(events);
    const found = checkTerms({
      registrations,
      contacts: contactsOf(events),
      downs: downsOf(events),
      departures,
      presenceTtlMs: scene.presenceTtlMs,
    });
    const last = new Map<string, number>();
    const expected = new Set(expectedAddresses(scene));
    for (const { address, epoch } of registrations)
      if (expected.has(address)) last.set(address, Math.max(epoch, last.get(address) ?? 0));
    const atRest = checkAtRest(last, rows, new Map(Object.entries(owners)));
    return { ...found, violations: [...found.violations, ...atRest] };
  },
};

const nameOf = (scene: Scene, index: number): string => `${scene.seed} ${scene.name} ${index}`;

function expectedAddresses(scene: Scene): string[] {
  const clients = Array.from({ length: members.clients }, (_, index) => `members-${index}`);
  return clients.flatMap((name) =>
    Array.from({ length: NODES }, (_, index) => keyOf(nameOf({ ...scene, name }, index)).address),
  );
}

const rotated = (urls: readonly string[], by: number): string[] => [
  ...urls.slice(by % urls.length),
  ...urls.slice(0, by % urls.length),
];

async function read(scene: Scene): Promise<MemberStores> {
  const stored = await withClient(scene.postgresUri, async (client) => ({
    rows: (await client.query("select address, epoch::int, online from node_unit")).rows,
    departures: (
      await client.query(
        `select subject as address, (details ->> 'epoch')::int as epoch
           from event where event in ('node.left', 'node.lost')`,
      )
    ).rows,
  }));
  const { mode, urls, prefix } = scene.redis;
  const redis = mode === "single" ? new Redis(urls[0]!) : new Cluster(urls);
  redis.on("error", () => {});
  const owners: Record<string, number> = {};
  for (const { address } of stored.rows) {
    const holder = await redis.get(`${prefix}:nodes:owner:{node:${address}}`);
    if (holder) owners[address] = Number(/:(\d+)$/.exec(holder)?.[1]);
  }
  redis.disconnect();
  return { ...stored, owners };
}

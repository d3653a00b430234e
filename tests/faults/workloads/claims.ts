import { call, withClient } from "@tenure/testing/fleet/nonce-fleet";
import type { RecordedEvent } from "@tenure/testing/history";
import { until } from "@tenure/testing/until";
import {
  type ClaimAsk,
  checkDeployments,
  type DeploymentStores,
  type ReleaseAsk,
  type ReportAsk,
  type Term,
} from "../checkers/deployments.ts";
import { operationsOf } from "../checkers/operations.ts";
import type { LoadContext, Scene, Workload } from "../workload.ts";
import { type Caller, createCaller } from "./callers.ts";
import { contactsOf, keyOf, type RecordedNode, startRecordedNode } from "./node-unit.ts";

const ROWS = 12;
const UNITS = 3;

/** I1, I2: node-units of the SDK that claim, release and report as fast as they can, and one that must not. */
export const claims: Workload = {
  name: "claims",
  promises: "I1, I2",
  clients: 2,
  uses: ["hosts"],
  survivesHotLoss: true,
  async load(context) {
    const { scene, quiet } = context;
    await createRows(scene, quiet);
    const units = Array.from({ length: UNITS }, (_, index) => startUnit(context, index));
    // It goes on when the load is over: somebody has to own what the last fault left behind.
    for (const unit of units) void keepClaiming(context, unit);
    await Promise.all(units.map((unit) => misbehave(context, unit)));
  },
  async settle({ scene, deadlineMs }) {
    const isSettled = async (): Promise<boolean> => {
      const { body } = await call(scene.urls[0]!, "/deployments?limit=500");
      const { body: nodes } = await call(scene.urls[0]!, "/nodes?limit=500");
      const present = new Set(
        nodes.items
          .filter((node: { online: boolean }) => node.online)
          .map((node: { node_id: string }) => node.node_id),
      );
      const rows: { name: string; address: string }[] = body.items;
      const mine = rows.filter(({ name }) => isMine(name));
      const orphans = mine.filter(({ address }) => !present.has(address));
      if (mine.length < ROWS || orphans.length > 0)
        throw new Error(`${orphans.length} of ${mine.length} have no owner that is present`);
      return true;
    };
    await until(isSettled, { deadlineMs, everyMs: 300, what: "an owner for every deployment" });
  },
  hazards: {
    claims: [],
    releases: ["claims.hosts-partition:14000", "claims.kill:6000"],
    conflicts: [],
    stale_reports_refused: ["claims.hosts-partition:14000"],
    policy_none_refused: ["claims.hosts-partition:14000", "claims.kill:6000"],
  },
  async read({ postgresUri }: Scene): Promise<DeploymentStores> {
    return withClient(postgresUri, async (client) => ({
      rows: (
        await client.query(
          "select id, address, generation::int, type from deployment where name like 'faults-%'",
        )
      ).rows,
      ledger: (
        await client.query(
          `select event.event, subject as id, details ->> 'address' as address,
                  (details ->> 'generation')::int as generation
             from event join deployment on deployment.id::text = subject
            where event.event in ('deployment.claimed', 'deployment.released', 'deployment.moved')
              and deployment.name like 'faults-%'
            order by event.id`,
        )
      ).rows,
    }));
  },
  check: (events: RecordedEvent[], stores: DeploymentStores, scene: Scene) =>
    checkDeployments(
      {
        claims: operationsOf<ClaimAsk, Term>(events, "claim"),
        releases: operationsOf<ReleaseAsk, { released: Term[] }>(events, "release"),
        reports: operationsOf<ReportAsk>(events, "report"),
        contacts: contactsOf(events),
        presenceTtlMs: scene.presenceTtlMs,
      },
      stores,
    ),
};

const isMine = (name: string): boolean => name.startsWith("faults-");

async function createRows({ urls }: Scene, quiet: AbortSignal): Promise<void> {
  for (let index = 0; index < ROWS; index++) {
    const body = { name: `faults-${index}`, package_name: "x", package_version: "1.0.0" };
    const made = async () => {
      const answer = await call(urls[index % urls.length]!, "/deployments", { body });
      return quiet.aborted || answer.status === 201 || answer.status === 409;
    };
    await until(made, { deadlineMs: 600_000, everyMs: 200, what: `deployment ${index}` });
  }
}

interface Unit extends RecordedNode {
  name: string;
  policy: string;
  caller: Caller;
  /** Terms it has won, newest last: also those that are over by now. */
  won: Term[];
}

/** The last one has the policy `none`, and asks all the same. */
function startUnit({ scene, history, quiet }: LoadContext, index: number): Unit {
  const name = `${scene.name}#${scene.start}/${index}`;
  const policy = index === UNITS - 1 ? "none" : "deployment_count";
  const caller = createCaller(name, scene.seed, quiet);
  const node = startRecordedNode({
    name,
    key: keyOf(`${scene.seed} ${scene.name} ${index}`),
    urls: scene.urls,
    history,
    describe: { claim_policy: policy },
  });
  return { ...node, name, policy, caller, won: [] };
}

/** A node-unit's loop, without its patience: what is lost is released, what is free is claimed. */
async function keepClaiming({ history }: LoadContext, unit: Unit): Promise<void> {
  const { connection, address, policy, name } = unit;
  for (;;) {
    try {
      await pass();
    } catch {
      // Not connected, or refused: the next pass sees more.
    }
    await new Promise((resolve) => setTimeout(resolve, 150 + unit.caller.random.fraction() * 400));
  }

  async function pass(): Promise<void> {
    const { items } = await connection.call("deployment.list", {});
    const view = await connection.call("member.list", {});
    const present = new Set(view.members.map((member) => member.address));
    const rows = items.filter((row) => isMine(row.name));
    const lost = [...new Set(rows.map((row) => row.address))].filter(
      (owner) => owner !== "" && !present.has(owner),
    );
    const own = { address, policy };
    if (view.view === "ready" && lost.length > 0) {
      const value = { process: name, f: "release", value: { ...own, addresses: lost } };
      const release = () => connection.call("deployment.release", { addresses: lost });
      await history.run(value, release, isRefusal).catch(() => {});
    }
    const candidates = rows
      .filter((row) => row.address === "" && row.enabled)
      .map(({ id, generation }) => ({ id, generation }));
    if (candidates.length === 0) return;
    const value = { process: name, f: "claim", value: { ...own, candidates } };
    const claim = () => connection.call("deployment.claim", { candidates });
    unit.won.push(await history.run(value, claim, isRefusal));
  }
}

/**
 * Reports on what it has, and on what it had: the latter must be refused. Asks for rows it saw long ago, and calls
 * everybody lost: the store knows better.
 */
async function misbehave({ history, quiet }: LoadContext, unit: Unit): Promise<void> {
  const { connection, address, caller, policy } = unit;
  const name = `${unit.name}/reports`;
  while (!quiet.aborted) {
    await caller.pause(100, 500);
    await releaseEverybody();
    const term = unit.won.length > 0 ? caller.oneOf(unit.won) : undefined;
    if (!term) continue;
    const asked: ReportAsk = {
      address,
      deployment_id: term.id,
      generation: term.generation,
      state: "running",
    };
    const { deployment_id, generation } = asked;
    const send = () =>
      connection.call("deployment.report", { deployment_id, generation, state: "running" });
    await history
      .run({ process: name, f: "report", value: asked }, send, isRefusal)
      .catch(() => {});
    // A claim by a view that is out of date: the row has another term by now.
    const candidates = [{ id: term.id, generation: Math.max(0, term.generation - 1) }];
    const value = { process: name, f: "claim", value: { address, policy, candidates } };
    const claim = () => connection.call("deployment.claim", { candidates });
    await history.run(value, claim, isRefusal).catch(() => {});
  }

  async function releaseEverybody(): Promise<void> {
    const addresses = [...(connection.members?.members.keys() ?? [])];
    if (addresses.length === 0) return;
    const value = { process: name, f: "release", value: { address, policy, addresses } };
    const release = () => connection.call("deployment.release", { addresses });
    await history.run(value, release, isRefusal).catch(() => {});
  }
}

/** Answers of the server that say: not done. Anything else is unknown. */
const isRefusal = (error: unknown): boolean =>
  /ERR_CLAIM_CONFLICT|ERR_POLICY_DISABLED|FENCED|CONFLICT|FORBIDDEN/.test(
    (error as { code?: string }).code ?? "",
  );

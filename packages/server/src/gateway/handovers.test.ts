import {
  type DeploymentView,
  type DeploymentWhy,
  NODE_CALLS,
  type NodeMethod,
} from "@tenure/protocol";
import { connectRawNode, type RawNode } from "@tenure/testing/fleet/raw-node";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type * as z from "zod";
import { openServer } from "../../testing/databases.ts";
import { readDeployment } from "../../testing/deployments.ts";
import { startTestApp } from "../../testing/test-app.ts";
import type { App } from "../app.ts";

// A row goes from one node that is there to another one: by a pin, and because its owner may not run it any more.

describe("a row moves away from a present owner", () => {
  let database: Awaited<ReturnType<typeof openServer>>;
  let app: App;
  let open: RawNode[] = [];
  beforeAll(async () => {
    database = await openServer();
    app = await startTestApp({
      postgresUri: database.uri,
      env: { TENURE_MEMBERSHIP_MASS_LOSS_BRAKE: "false" },
    });
  });
  afterEach(async () => {
    await Promise.all(open.map((node) => node.close()));
    open = [];
    await database.db.script("delete from deployment");
  });
  afterAll(async () => {
    await app.stop();
    await database.close();
  });

  async function node(changes: Parameters<RawNode["register"]>[0] = {}) {
    const raw = await connectRawNode({ url: app.url });
    await raw.register({ trusted_package_regexp: ".*", ...changes });
    open.push(raw);
    let lastId = 0;
    async function call<M extends NodeMethod>(method: M, params: object) {
      const id = ++lastId;
      raw.send({ type: "request", id, method, params });
      const { result, error } = await raw.receive("response", (response) => response.id === id);
      if (error) throw new Error(error.code);
      return NODE_CALLS[method].result.parse(result) as z.infer<(typeof NODE_CALLS)[M]["result"]>;
    }
    return {
      address: raw.key.address,
      call,
      report: (state: string) =>
        call("deployment.report", { deployment_id: id, generation, state }),
      release: async (address: string) =>
        (await call("deployment.release", { addresses: [address] })).released,
    };
  }

  let id = "";
  let generation = 0;
  const row = () => readDeployment(database.db, id);

  async function owned(owner: Awaited<ReturnType<typeof node>>, spec: object = {}) {
    const made = await ask("POST", "/deployments", {
      package_name: "web",
      package_version: "1.0.0",
      ...spec,
    });
    ({ id } = made);
    await owner.call("deployment.claim", { candidates: [{ id, generation: 0 }] });
    generation = 1;
    await owner.report("running");
  }

  async function ask(method: string, path: string, body?: object) {
    const answer = await fetch(`${app.url}/api/v1${path}`, {
      method,
      ...(body && { headers: { "content-type": "application/json" }, body: JSON.stringify(body) }),
    });
    return (await answer.json()) as DeploymentView & DeploymentWhy;
  }

  test("a pin changes the owner only when the former one has stopped", async () => {
    const [owner, next] = [await node(), await node()];
    await owned(owner, { lost_after_ms: 60_000 });
    const pinned = await ask("PATCH", `/deployments/${id}`, { pin: next.address });
    expect(pinned).toMatchObject({
      ...{
        address: owner.address,
        generation: 1,
        moving_to: next.address,
        move_state: "installing",
      },
      selector: { address: next.address },
    });
    await next.report("stopped");
    expect(await row()).toMatchObject({ address: owner.address, move_state: "ready" });
    const claim = () => next.call("deployment.claim", { candidates: [{ id, generation: 1 }] });
    await expect(claim()).rejects.toThrow("ERR_CLAIM_CONFLICT");
    await owner.report("stopped");
    expect(await claim()).toEqual({ id, generation: 2 });
    expect(await row()).toMatchObject({ address: next.address, moving_to: "" });
  });

  test("a pin is handed over by an owner that refuses it at once, as 0.1.0 does", async () => {
    const [owner, next] = [await node(), await node()];
    await owned(owner);
    await ask("PATCH", `/deployments/${id}`, { pin: next.address });
    await owner.report("refused");
    await next.report("stopped");
    expect(await row()).toMatchObject({ address: owner.address, move_state: "stopped" });
  });

  test("a pin to a node of policy none is ended by the server, which claims nothing itself", async () => {
    const [owner, next] = [await node(), await node({ claim_policy: "none" })];
    await owned(owner);
    await ask("PATCH", `/deployments/${id}`, { pin: next.address });
    await next.report("stopped");
    await owner.report("stopped");
    await until(async () => (await row()).address === next.address, { what: "the move" });
    expect(await row()).toMatchObject({ generation: 2, moving_to: "" });
  });

  test("a pin to an absent node waits for it, and why names it", async () => {
    const [owner, next] = [await node(), await node()];
    await owned(owner);
    const target = next.address;
    await open.pop()!.close();
    await until(async () => !(await members()).includes(target), { what: "it to leave" });
    await ask("PATCH", `/deployments/${id}`, { pin: target });
    expect(await row()).toMatchObject({ address: owner.address, moving_to: "" });
    const { answer } = await ask("GET", `/deployments/${id}/why`);
    expect(answer).toContain("which is not there; until then it stays at node");
  });

  test("a node that failed to install what is pinned to it gets it again later, one that refused does not", async () => {
    const [owner, next] = [await node(), await node()];
    await owned(owner);
    await ask("PATCH", `/deployments/${id}`, { pin: next.address });
    await next.report("refused");
    expect(await row()).toMatchObject({ moving_to: "" });
    await ask("PATCH", `/deployments/${id}`, { enabled: true });
    expect(await row()).toMatchObject({ moving_to: "" });
    await ask("PATCH", `/deployments/${id}`, { args: ["x"] });
    expect(await row()).toMatchObject({ moving_to: next.address });
  });

  test("a row whose owner no longer matches the selector moves to a matching node once the owner has stopped", async () => {
    const owner = await node({ labels: { zone: "a" } });
    const [fit, other] = [await node({ labels: { zone: "b" } }), await node()];
    const none = await node({ labels: { zone: "b" }, claim_policy: "none" });
    await owned(owner, { selector: { zone: "a" } });
    await ask("PATCH", `/deployments/${id}`, { selector: { zone: "b" } });
    expect(await fit.release(owner.address)).toEqual([]);
    await owner.report("refused");
    // The owner's word alone changes nothing, nor does a node that may not run it or never claims.
    expect(await row()).toMatchObject({ address: owner.address });
    const { reasons } = await ask("GET", `/deployments/${id}/why`);
    expect(reasons.map(({ code }) => code)).toEqual(["owner_unfit", "refused"]);
    expect(reasons[0]!.message).toContain("may run it; the next pass of such a node takes it");
    expect(await other.release(owner.address)).toEqual([]);
    await expect(none.release(owner.address)).rejects.toThrow("ERR_POLICY_DISABLED");
    expect(await fit.release(owner.address)).toEqual([{ id, generation: 2 }]);
    expect(await fit.call("deployment.claim", { candidates: [{ id, generation: 2 }] })).toEqual({
      id,
      generation: 3,
    });
  });

  test("a revision that a node refused is not offered to it again until its traits change", async () => {
    const owner = await node({ labels: { zone: "a" } });
    await owned(owner);
    await owner.report("refused");
    await database.db.script(`update deployment set address = ''`);
    const claim = (term: number) =>
      owner.call("deployment.claim", { candidates: [{ id, generation: term }] });
    await expect(claim(2)).rejects.toThrow("ERR_CLAIM_CONFLICT");
    await database.db.script(
      `update node_unit set labels = '{"zone": "b"}' where address = '${owner.address}'`,
    );
    expect(await claim(2)).toEqual({ id, generation: 3 });
  });

  const members = async () =>
    (
      await database.db.query<{ address: string }>({
        text: "select address from node_unit where online",
        values: [],
        name: "online",
      })
    ).rows.map(({ address }) => address);
});

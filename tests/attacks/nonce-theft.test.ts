import { randomUUID } from "node:crypto";
import { storeSettings } from "@tenure/testing/fleet/running-server";
import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type AttackedServer, type AttackToken, attackServer } from "./scene.ts";

const TOKENS: AttackToken[] = [
  { name: "root", role: "admin", tenant: "*" },
  { name: "admin", role: "admin" },
  { name: "viewer", role: "viewer" },
  { name: "signer", role: "signer", scope: { signers: ["eip155:1:*"] } },
  { name: "signer2", role: "signer" },
  { name: "badmin", role: "admin", tenant: "blue" },
  { name: "bviewer", role: "viewer", tenant: "blue" },
  { name: "bsigner", role: "signer", tenant: "blue", scope: { signers: ["eip155:5:*"] } },
];
const HIDDEN = "00000000-0000-0000-0000-000000000000";

interface Allocated {
  nonce: number;
  hold_id: string;
  status: string;
}

let served = 0;
const newSigner = (chain = 1) => `eip155:${chain}:0x${String(served++).padStart(40, "0")}`;
const numbers = (signer: string, rest = "") => `/api/v1/signers/${signer}/nonces${rest}`;
const codeOf = ({ body }: { body: unknown }) =>
  (body as { error?: { code: string } }).error?.code ?? "OK";
const itemsOf = ({ body }: { body: unknown }) =>
  (body as { items: Record<string, unknown>[] }).items;

async function allocate(
  server: AttackedServer,
  as: string,
  signer: string,
  id: string = randomUUID(),
) {
  const { status, body } = await server.as(as, "POST", numbers(signer), { request_id: id });
  expect([status, body]).toMatchObject([200, { signer }]);
  return body as Allocated;
}

describe("one server, two tenants", () => {
  let server: AttackedServer;
  beforeAll(async () => {
    server = await attackServer(TOKENS);
  });
  afterAll(() => server.stop());

  test("another tenant cannot take a nonce that is being broadcast", async () => {
    const signer = newSigner();
    const held = await allocate(server, "signer", signer, "payment-1");
    // The same request id, a list, and a hold id that leaked some other way.
    const repeated = await server.as("bsigner", "POST", numbers(signer), {
      request_id: "payment-1",
    });
    const listed = await server.as("bsigner", "GET", numbers(signer));
    const recycle = { hold_id: held.hold_id, reason: "mine now" };
    const path = numbers(signer, `/${held.nonce}/recyclable`);
    const forged = {
      "x-tenure-forwarded": "i-1",
      "x-tenure-tenant": "default",
      "x-tenure-opens-in": "default",
      authorization: `Bearer ${server.secretOf("bsigner")}`,
      "content-type": "application/json",
    };
    const body = JSON.stringify(recycle);
    const recycled = [
      await server.as("bsigner", "POST", path, recycle),
      await server.as("badmin", "POST", path, recycle),
      await server.get(path, { method: "POST", headers: forged, body }),
    ];
    const next = await allocate(server, "signer", signer);
    expect({
      repeated: codeOf(repeated),
      listed: itemsOf(listed),
      recycled: recycled.map(codeOf),
      next: next.nonce,
    }).toEqual({
      repeated: "FORBIDDEN",
      listed: [],
      recycled: ["NOT_FOUND", "NOT_FOUND", "NOT_FOUND"],
      next: held.nonce + 1,
    });
  });

  test("hold ids are in the answer to their own request, and in lists of admins", async () => {
    const signer = newSigner();
    const held = await allocate(server, "signer", signer, "payment-2");
    expect((await allocate(server, "signer2", signer, "payment-2")).hold_id).toBe(held.hold_id);
    for (const as of ["viewer", "signer", "signer2"])
      expect([as, itemsOf(await server.as(as, "GET", numbers(signer)))]).toMatchObject([
        as,
        [{ nonce: 0, status: "HELD", hold_id: HIDDEN }],
      ]);
    for (const as of ["admin", "root"])
      expect(itemsOf(await server.as(as, "GET", numbers(signer)))).toMatchObject([
        { hold_id: held.hold_id },
      ]);
  });

  test("a signer of another tenant cannot be told from one that does not exist", async () => {
    const [theirs, none] = [newSigner(), newSigner()];
    await allocate(server, "signer", theirs);
    const hold_id = randomUUID();
    for (const as of ["bsigner", "bviewer", "badmin"]) {
      const answers = async (signer: string) => {
        const path = `/api/v1/signers/${signer}`;
        const listed = await server.as(as, "GET", `${path}/nonces`);
        expect(itemsOf(listed)).toEqual([]);
        const all = [
          await server.as(as, "GET", path),
          await server.as(as, "POST", `${path}/nonces`, { request_id: "r" }),
          await server.as(as, "PUT", path, { next_nonce: 500 }),
          await server.as(as, "POST", `${path}/nonces/0/used`, { hold_id, tx_hash: "0x1" }),
          await server.as(as, "POST", `${path}/nonces/0/resolve`, {
            status: "RELEASED",
            reason: "x",
          }),
          await server.as(as, "POST", `${path}/move`, { tenant: "blue" }),
        ];
        expect(all.map(({ status }) => status).filter((status) => status < 300)).toEqual([]);
        return JSON.stringify(all).replaceAll(signer, "SIGNER");
      };
      expect(await answers(theirs)).toBe(await answers(none));
      expect(itemsOf(await server.as(as, "GET", "/api/v1/signers?limit=500"))).toEqual([]);
    }
    const seen = itemsOf(
      await server.as("root", "GET", "/api/v1/signers?tenant=default&limit=500"),
    );
    expect(seen.map(({ signer }) => signer)).toContain(theirs);
    expect(seen.map(({ signer }) => signer)).not.toContain(none);
    expect(codeOf(await server.as("badmin", "GET", "/api/v1/signers?tenant=default"))).toBe(
      "FORBIDDEN",
    );
  });

  test("only a token whose list matches opens a signer, in its own tenant", async () => {
    const open = (as: string, signer: string, query = "") =>
      server.as(as, "POST", `${numbers(signer)}${query}`, { request_id: randomUUID() });
    const asked = [
      await open("bsigner", newSigner(1)),
      await open("signer", newSigner(5)),
      await open("signer2", newSigner(1)),
      await open("admin", newSigner(1)),
      await open("root", newSigner(1)),
      await open("bsigner", newSigner(5)),
      await open("root", newSigner(7), "?tenant=blue"),
    ];
    const refused = Array<string>(5).fill("FORBIDDEN");
    expect(asked.map(codeOf)).toEqual([...refused, "OK", "OK"]);
    const blue = itemsOf(await server.as("bviewer", "GET", "/api/v1/signers"));
    expect(blue.map(({ tenant }) => tenant)).toEqual(["blue", "blue"]);
  });

  test("a moved signer goes with its numbers; its former tenant can no longer write", async () => {
    const signer = newSigner();
    const held = await allocate(server, "signer", signer);
    const move = (as: string) =>
      server.as(as, "POST", `/api/v1/signers/${signer}/move`, { tenant: "blue" });
    expect([codeOf(await move("admin")), codeOf(await move("badmin"))]).toEqual([
      "FORBIDDEN",
      "NOT_FOUND",
    ]);
    expect((await move("root")).body).toMatchObject({ signer, tenant: "blue", held: 1 });
    const used = { hold_id: held.hold_id, tx_hash: "0x1" };
    expect(codeOf(await server.as("signer", "POST", numbers(signer, "/0/used"), used))).toBe(
      "NOT_FOUND",
    );
    const again = await server.as("signer", "POST", numbers(signer), { request_id: "r" });
    expect(codeOf(again)).toBe("FORBIDDEN");
    expect((await allocate(server, "bsigner", signer)).nonce).toBe(1);
    const events = await server.as("root", "GET", "/api/v1/events?limit=500");
    expect(itemsOf(events)).toContainEqual(
      expect.objectContaining({ event: "signer.moved", subject: signer }),
    );
  });
});

describe("two servers in Worker-Queue mode", () => {
  const settings = '[nonce]\nmode = "worker_queue"\n[auth]\npeer_token = "a-secret-of-the-peers"\n';
  let database: TestDatabase;
  let servers: AttackedServer[] = [];
  beforeAll(async () => {
    database = await createDatabase(stores().postgresAdminUri);
    const env = storeSettings({ postgresUri: database.uri });
    const first = await attackServer(TOKENS, { env, settings });
    servers = [first, await attackServer(TOKENS, { env, settings })];
  });
  afterAll(async () => {
    await Promise.all(servers.map((server) => server.stop()));
    await database.drop();
  });

  test("a forwarded call is judged by its caller's tenant, at every instance", async () => {
    // By their hash about half of these belong to the other instance.
    for (let k = 0; k < 8; k++) {
      const signer = newSigner(5);
      const held = await allocate(servers[0]!, "bsigner", signer, "payment");
      expect((await allocate(servers[1]!, "bsigner", signer, "payment")).hold_id).toBe(
        held.hold_id,
      );
      const recycle = { hold_id: held.hold_id, reason: "mine now" };
      for (const server of servers) {
        const path = numbers(signer, "/0/recyclable");
        expect(codeOf(await server.as("signer", "POST", path, recycle))).toBe("NOT_FOUND");
        const asked = await server.as("signer", "POST", numbers(signer), { request_id: "payment" });
        expect(codeOf(asked)).toBe("FORBIDDEN");
      }
      expect((await allocate(servers[k % 2]!, "bsigner", signer)).nonce).toBe(1);
    }
  });

  test("a server of 0.1, which names no tenant, reaches signers of default only", async () => {
    const [mine, theirs] = [newSigner(1), newSigner(5)];
    await allocate(servers[0]!, "signer", mine);
    const held = await allocate(servers[0]!, "bsigner", theirs);
    const headers = {
      authorization: "Bearer a-secret-of-the-peers",
      "x-tenure-forwarded": "i-old",
      "content-type": "application/json",
    };
    // One of the two keeps the lease, and the other answers LEASE_HELD.
    const asPeer = async (signer: string) => {
      const body = JSON.stringify({ request_id: randomUUID() });
      const path = `${numbers(signer)}?wait_ms=0`;
      const ask = (server: AttackedServer) => server.get(path, { method: "POST", headers, body });
      return (await Promise.all(servers.map(ask))).map(codeOf);
    };
    // Asked at once, the one without the lease may hold its row for a moment: then both answer LEASE_HELD.
    const isGiven = async () => (await asPeer(mine)).includes("OK");
    await until(isGiven, { what: "a number for a server of 0.1" });
    expect(await asPeer(theirs)).toEqual(["FORBIDDEN", "FORBIDDEN"]);
    expect((await allocate(servers[1]!, "bsigner", theirs)).nonce).toBe(held.nonce + 1);
  });
});

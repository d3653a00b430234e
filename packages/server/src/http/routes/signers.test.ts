import { randomUUID } from "node:crypto";
import type { TestDatabase } from "@tenure/testing/stores/database";
import { until } from "@tenure/testing/until";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Answer, openApp, openAppDatabase, type TestApp } from "../../../testing/apps.ts";

const newSigner = () => `eip155:1:0x${randomUUID().replaceAll("-", "")}00000000`;
const path = (signer: string, rest = "") =>
  `/api/v1/signers/${encodeURIComponent(signer)}/nonces${rest}`;
const codeOf = ({ body }: { body: Answer }) => body.error?.code;

let database: TestDatabase;
beforeAll(async () => {
  database = await openAppDatabase();
});
afterAll(() => database.drop());

describe("a signer over HTTP", () => {
  let app: TestApp;
  beforeAll(async () => {
    app = await openApp(database.uri);
  });
  afterAll(() => app.stop());
  const allocate = async (signer: string, body: object = { request_id: randomUUID() }) =>
    (await app.ask("POST", path(signer), body)).body;

  test("a signer allocates nonces, takes marks, and answers a repeated mark alike", async () => {
    const signer = newSigner();
    const first = await allocate(signer);
    expect(first).toMatchObject({ signer, nonce: 0, fencing_token: 1, status: "HELD" });
    const many = await allocate(signer, { request_id: "many", count: 3 });
    expect(many.items.map(({ nonce }: Answer) => nonce)).toEqual([1, 2, 3]);
    expect(await allocate(signer, { request_id: "many", count: 3 })).toEqual(many);
    const used = { hold_id: first.hold_id, tx_hash: "0xAB" };
    for (const _ of [1, 2]) {
      const { status, body } = await app.ask("POST", path(signer, "/0/used"), used);
      expect([status, body.status, body.tx_hash]).toEqual([200, "CONSUMED", "0xab"]);
    }
    const [back] = many.items;
    const recycle = { hold_id: back.hold_id, reason: "not signed" };
    const recycled = await app.ask("POST", path(signer, "/1/recyclable"), recycle);
    expect(recycled.body).toMatchObject({ status: "RELEASED", reason: "not signed" });
    expect(await allocate(signer)).toMatchObject({ nonce: 1 });
    const { body: view } = await app.ask("GET", `/api/v1/signers/${signer}`);
    expect(view).toMatchObject({ next_nonce: 4, held: 3, released: 0, owner_node: null });
  });

  test("a late duplicate of a request whose number was reused gets its own answer", async () => {
    const signer = newSigner();
    const first = await allocate(signer, { request_id: "late" });
    await app.ask("POST", path(signer, "/0/recyclable"), { hold_id: first.hold_id, reason: "x" });
    expect(await allocate(signer, { request_id: "other" })).toMatchObject({ nonce: 0 });
    expect(await allocate(signer, { request_id: "late" })).toEqual({
      ...first,
      status: "RELEASED",
    });
    expect(await allocate(signer)).toMatchObject({ nonce: 1 });
  });

  test("a mixed-case address is the same signer", async () => {
    const signer = newSigner();
    await allocate(signer);
    const mixed = signer.replace(/0x.*/, (address) => `0x${address.slice(2).toUpperCase()}`);
    expect(await allocate(mixed)).toMatchObject({ signer, nonce: 1 });
  });

  test("a signer rejects invalid requests, each with its own error", async () => {
    const signer = newSigner();
    const { hold_id } = await allocate(signer);
    const used = (nonce: string, body: object = { hold_id, tx_hash: "0x1" }) =>
      app.ask("POST", path(signer, `/${nonce}/used`), body);
    for (const nonce of ["-1", "1.5", "abc", "9007199254740992", "99999999999999999999", ""])
      expect([nonce, codeOf(await used(nonce))]).toEqual([nonce, "INVALID_REQUEST"]);
    expect(codeOf(await used("7"))).toBe("NOT_FOUND");
    expect(codeOf(await used("0", { hold_id: randomUUID(), tx_hash: "0x1" }))).toBe(
      "HOLD_MISMATCH",
    );
    expect(codeOf(await used("0", { hold_id, tx_hash: "" }))).toBe("INVALID_REQUEST");
    expect((await used("0")).status).toBe(200);
    expect(codeOf(await used("0", { hold_id, tx_hash: "0x2" }))).toBe("CONFLICT");
    const recycle = { hold_id, reason: "changed my mind" };
    expect(codeOf(await app.ask("POST", path(signer, "/0/recyclable"), recycle))).toBe("CONFLICT");
    for (const bad of ["", "a b", "x".repeat(10_000), "ü"]) {
      const { status } = await app.ask("POST", path(bad), { request_id: "r" });
      expect([bad.slice(0, 5), status]).toEqual([bad.slice(0, 5), 400]);
    }
    for (const body of [
      {},
      { request_id: "" },
      { request_id: "r", count: 0 },
      { request_id: "r", count: 101 },
      { request_id: "{r}" },
    ])
      expect(codeOf(await app.ask("POST", path(signer), body))).toBe("INVALID_REQUEST");
    await allocate(signer, { request_id: "counted", count: 2 });
    expect(codeOf(await app.ask("POST", path(signer), { request_id: "counted", count: 3 }))).toBe(
      "REQUEST_ID_REUSED",
    );
  });

  test("a raise never lowers the cursor, and an operator resolves quarantined nonces only", async () => {
    const signer = newSigner();
    const raise = (next_nonce: unknown) =>
      app.ask("PUT", `/api/v1/signers/${signer}`, { next_nonce });
    expect((await raise(57)).body).toMatchObject({ next_nonce: 57 });
    expect(codeOf(await raise(56))).toBe("CONFLICT");
    expect(codeOf(await raise(-1))).toBe("INVALID_REQUEST");
    expect(await allocate(signer)).toMatchObject({ nonce: 57 });
    const resolve = { status: "RELEASED", reason: "never sent" };
    expect(codeOf(await app.ask("POST", path(signer, "/57/resolve"), resolve))).toBe("CONFLICT");
  });

  describe("a raise", () => {
    const raise = (signer: string, body: object) =>
      app.ask("PUT", `/api/v1/signers/${signer}`, body);

    test("I9: settles what is open below it: nothing below the raised cursor comes back", async () => {
      const signer = newSigner();
      const { items } = await allocate(signer, { request_id: "five", count: 5 });
      const back = (nonce: number) =>
        app.ask("POST", path(signer, `/${nonce}/recyclable`), {
          hold_id: items[nonce].hold_id,
          reason: "never signed",
        });
      await back(2);
      expect((await raise(signer, { next_nonce: 100 })).body).toMatchObject({
        ...{ next_nonce: 100, held: 0, released: 0, quarantined: 0 },
      });
      expect(await allocate(signer)).toMatchObject({ nonce: 100 });
      // A holder from before the raise can neither bring its number back nor loses its hash.
      expect(codeOf(await back(3))).toBe("CONFLICT");
      const used = { hold_id: items[4].hold_id, tx_hash: "0x4" };
      expect((await app.ask("POST", path(signer, "/4/used"), used)).body).toMatchObject({
        ...{ status: "CONSUMED", tx_hash: "0x4" },
      });
      expect(await allocate(signer)).toMatchObject({ nonce: 101 });
    });

    test("a raise to the present cursor resolves open nonces too: the chain has used all below", async () => {
      const signer = newSigner();
      const { hold_id } = await allocate(signer);
      await app.ask("POST", path(signer, "/0/recyclable"), { hold_id, reason: "x" });
      expect((await raise(signer, { next_nonce: 1 })).status).toBe(200);
      expect(await allocate(signer)).toMatchObject({ nonce: 1 });
    });

    test("a raise by more than ahead_max needs a confirmation", async () => {
      const signer = newSigner();
      await allocate(signer);
      const far = { next_nonce: Number.MAX_SAFE_INTEGER };
      const refused = await raise(signer, far);
      expect([refused.status, codeOf(refused)]).toEqual([409, "CONFIRMATION_REQUIRED"]);
      expect(await allocate(signer)).toMatchObject({ nonce: 1 });
      expect((await raise(signer, { next_nonce: 1002 })).status).toBe(200);
      expect((await raise(signer, { ...far, confirm: true })).body).toMatchObject(far);
    });
  });

  test("signers and nonces are listed page by page", async () => {
    const signer = newSigner();
    const { items } = await allocate(signer, { request_id: "page", count: 5 });
    await app.ask("POST", path(signer, "/2/used"), { hold_id: items[2].hold_id, tx_hash: "0x2" });
    const first = (await app.ask("GET", path(signer, "?limit=3"))).body;
    expect(first.items.map(({ nonce }: Answer) => nonce)).toEqual([0, 1, 2]);
    const second = (await app.ask("GET", path(signer, `?limit=3&cursor=${first.next_cursor}`)))
      .body;
    expect(second.items.map(({ nonce }: Answer) => nonce)).toEqual([3, 4]);
    expect(second.next_cursor).toBeNull();
    const held = (await app.ask("GET", path(signer, "?status=HELD"))).body;
    expect(held.items.map(({ nonce }: Answer) => nonce)).toEqual([0, 1, 3, 4]);
    expect(codeOf(await app.ask("GET", path(signer, "?cursor=x")))).toBe("INVALID_REQUEST");
    const all = new Set<string>();
    for (let cursor = ""; ; ) {
      const { body } = await app.ask(
        "GET",
        `/api/v1/signers?limit=2${cursor && `&cursor=${cursor}`}`,
      );
      for (const view of body.items) all.add(view.signer);
      if (!body.next_cursor) break;
      cursor = body.next_cursor;
    }
    expect(all).toContain(signer);
    expect(codeOf(await app.ask("GET", "/api/v1/signers/nobody"))).toBe("NOT_FOUND");
  });

  test("a signer counts its operations", async () => {
    const { body } = await app.ask("GET", "/metrics");
    expect(body).toMatch(/tenure_lease_acquired_total\{result="new"\} \d/);
    expect(body).toMatch(/tenure_nonce_batch_size_count \d/);
  });
});

describe("Worker-Queue mode, two servers", () => {
  const env = { TENURE_NONCE_MODE: "worker_queue", TENURE_AUTH_PEER_TOKEN: "peers-only" };
  const tokens = {
    TENURE_TOKENS: "admin:boss-of-the-fleet,signer:pen-of-the-fleet,viewer:eye-of-the-fleet",
  };
  const as = (secret: string) => ({ authorization: `Bearer ${secret}` });
  let apps: TestApp[];
  beforeAll(async () => {
    apps = [
      await openApp(database.uri, { ...env, ...tokens }),
      await openApp(database.uri, { ...env, ...tokens }),
    ];
    await until(agree, { what: "the two to know each other" });
  });
  /** Each sends a signer of its own choice to the same owner: a rival would find the lease held. */
  async function agree(): Promise<boolean> {
    for (let k = 0; k < 8; k++) {
      const signer = newSigner();
      for (const [index, app] of apps.entries()) {
        const body = { request_id: `r${index}` };
        const answer = await app.ask(
          "POST",
          `${path(signer)}?wait_ms=1`,
          body,
          as("pen-of-the-fleet"),
        );
        if (answer.body.fencing_token !== 1) return false;
      }
    }
    return true;
  }
  afterAll(async () => {
    await Promise.all(apps.map((app) => app.stop()));
  });

  test("one of the servers does the work of a signer, whichever receives the request", async () => {
    const signers = Array.from({ length: 12 }, newSigner);
    const owners = new Map<string, Set<string>>();
    for (const signer of signers) {
      for (const [index, app] of [...apps, ...apps].entries()) {
        const { body } = await app.ask(
          "POST",
          path(signer),
          { request_id: `r${index}` },
          as("pen-of-the-fleet"),
        );
        expect(body).toMatchObject({ nonce: index, fencing_token: 1 });
        const { body: view } = await app.ask(
          "GET",
          `/api/v1/signers/${signer}`,
          undefined,
          as("eye-of-the-fleet"),
        );
        owners.set(signer, (owners.get(signer) ?? new Set()).add(view.owner_node));
      }
    }
    expect([...owners.values()].every((each) => each.size === 1)).toBe(true);
    expect(new Set([...owners.values()].flatMap((each) => [...each])).size).toBe(2);
  });

  test("marks and rejections are forwarded too", async () => {
    for (const app of apps) {
      const signer = newSigner();
      const { body } = await app.ask(
        "POST",
        path(signer),
        { request_id: "r" },
        as("pen-of-the-fleet"),
      );
      const used = { hold_id: body.hold_id, tx_hash: "0x1" };
      expect(
        (await app.ask("POST", path(signer, "/0/used"), used, as("pen-of-the-fleet"))).body.status,
      ).toBe("CONSUMED");
      const other = { ...used, hold_id: randomUUID() };
      expect(
        codeOf(await app.ask("POST", path(signer, "/0/used"), other, as("pen-of-the-fleet"))),
      ).toBe("HOLD_MISMATCH");
      expect(
        codeOf(await app.ask("POST", path(signer, "/9/used"), used, as("pen-of-the-fleet"))),
      ).toBe("NOT_FOUND");
      const resolve = { status: "CONSUMED", reason: "seen" };
      expect(
        codeOf(await app.ask("POST", path(signer, "/0/resolve"), resolve, as("pen-of-the-fleet"))),
      ).toBe("FORBIDDEN");
      expect(
        (await app.ask("POST", path(signer, "/0/resolve"), resolve, as("boss-of-the-fleet")))
          .status,
      ).toBe(200);
    }
  });

  test("a forwarded request is executed where it arrives", async () => {
    const forwarded = { ...as("peers-only"), "x-tenure-forwarded": "elsewhere" };
    const signer = newSigner();
    for (const app of apps) {
      const answer = await app.ask("POST", path(signer), { request_id: "here" }, forwarded);
      expect([answer.status === 200 ? answer.body.nonce : codeOf(answer)]).toEqual(
        answer.status === 200 ? [0] : ["LEASE_HELD"],
      );
    }
  });

  test("a server that died is passed over at once", async () => {
    const client = new pg.Client({ connectionString: database.uri });
    await client.connect();
    await client.query(
      `insert into instance values ('gone', gen_random_uuid(), 'http://127.0.0.1:9', '0.0.0', now(), now() + interval '1 hour')`,
    );
    const late = await openApp(database.uri, { ...env, ...tokens });
    const answers = await Promise.all(
      Array.from({ length: 30 }, () =>
        late.ask("POST", path(newSigner()), { request_id: "r" }, as("pen-of-the-fleet")),
      ),
    );
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    await client.query("delete from instance where instance_id = 'gone'");
    await client.end();
    await late.stop();
  });
});

test("servers of different modes at once hand out each number once", async () => {
  const apps = [
    await openApp(database.uri, { TENURE_NONCE_MODE: "worker_queue" }),
    await openApp(database.uri),
    await openApp(database.uri),
  ];
  const signer = newSigner();
  const numbers: number[] = [];
  const caller = async (index: number) => {
    for (let done = 0; done < 10; ) {
      const app = apps[(index + done) % apps.length]!;
      const answer = await app.ask("POST", `${path(signer)}?wait_ms=5000`, {
        request_id: `${index}-${done}`,
      });
      if (answer.status === 200) {
        numbers.push(answer.body.nonce);
        done += 1;
      } else expect(codeOf(answer)).toBe("LEASE_HELD");
    }
  };
  await Promise.all(Array.from({ length: 6 }, (_, index) => caller(index)));
  expect(numbers.sort((a, b) => a - b)).toEqual(Array.from({ length: 60 }, (_, k) => k));
  await Promise.all(apps.map((app) => app.stop()));
});

test("another history stops allocation until an operator confirms it, also on connections that stay open", async () => {
  const own = await openAppDatabase();
  const app = await openApp(own.uri);
  const signer = newSigner();
  const ask = () => app.ask("POST", path(signer), { request_id: randomUUID() });
  expect((await ask()).status).toBe(200);
  const client = new pg.Client({ connectionString: own.uri });
  await client.connect();
  // As on a standby that was promoted behind a pooler: the row names another run and another timeline.
  await client.query(
    "update tenure_meta set timeline = timeline + 1, run_started_at = run_started_at - interval '1 hour'",
  );
  const refused = await ask();
  expect(refused.body.error).toMatchObject({
    code: "DEPENDENCY_DOWN",
    retryable: true,
    details: { reason: "timeline" },
  });
  const unconfirmed = { state: "unconfirmed", reason: "another timeline" };
  expect((await app.ask("GET", "/api/v1/cluster")).body).toMatchObject({
    ...{ timeline_confirmed: false, timeline: unconfirmed },
  });
  const ready = await app.ask("GET", "/health/ready");
  expect([ready.status, ready.body.nonces]).toEqual([200, { timeline: unconfirmed }]);
  expect((await app.ask("GET", "/metrics")).body).toContain(
    'tenure_nonce_timeline{state="unconfirmed"} 1',
  );
  const events = (await app.ask("GET", "/api/v1/events?event=timeline.refused")).body.items;
  expect(events).toMatchObject([{ details: { reason: "another timeline" } }]);
  // The documented order: raise first, then confirm.
  const raised = await app.ask("PUT", `/api/v1/signers/${signer}`, { next_nonce: 7 });
  expect(raised.body).toMatchObject({ next_nonce: 7 });
  const confirmed = await app.ask("POST", "/api/v1/cluster/confirm-timeline");
  expect(confirmed.body).toMatchObject({
    ...{ timeline_confirmed: true, timeline: { state: "confirmed" } },
  });
  expect((await ask()).body).toMatchObject({ nonce: 7 });
  await client.end();
  await app.stop();
  await own.drop();
});

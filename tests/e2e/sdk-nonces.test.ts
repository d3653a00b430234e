import { randomUUID } from "node:crypto";
import { createAdmin, createNonces, NonceKept, ROUTES } from "@tenure/sdk";
import { startTenure } from "@tenure/testing/processes/process";
import { startProxy } from "@tenure/testing/processes/proxy";
import type { TestDatabase } from "@tenure/testing/stores/database";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openApp, openAppDatabase, type TestApp } from "../../packages/server/testing/apps.ts";

let database: TestDatabase;
let app: TestApp;
beforeAll(async () => {
  database = await openAppDatabase();
  app = await openApp(database.uri);
});
afterAll(async () => {
  await app.stop();
  await database.drop();
});
const newSigner = () => `eip155:1:0x${randomUUID().replaceAll("-", "")}00000000`;
const open = (signer: string, nonce: number) =>
  createAdmin({ url: app.url })
    .call(ROUTES.listNonces, { params: { signer } })
    .then(({ items }) => items[nonce]);

describe("withNonce", () => {
  test("withNonce marks the nonce as the sender returns", async () => {
    const signer = newSigner();
    const nonces = createNonces({ url: app.url });
    const sent = await nonces.withNonce(signer, async ({ nonce }) => ({ txHash: `0x${nonce}` }));
    expect(sent).toMatchObject({ nonce: { nonce: 0 }, broadcast: { txHash: "0x0" } });
    await nonces.withNonce(signer, async () => ({ unsent: "not signed" }));
    expect(await open(signer, 0)).toMatchObject({ status: "CONSUMED", tx_hash: "0x0" });
    expect(await open(signer, 1)).toMatchObject({ status: "RELEASED", reason: "not signed" });
  });

  test("withNonce keeps the hold when the sender throws", async () => {
    const signer = newSigner();
    const nonces = createNonces({ url: app.url });
    const failing = nonces.withNonce(signer, async () => Promise.reject(new Error("time-out")));
    const kept = await failing.catch((error: unknown) => error);
    expect(kept).toBeInstanceOf(NonceKept);
    expect(kept).toMatchObject({ nonce: { nonce: 0 }, broadcast: undefined });
    expect(await open(signer, 0)).toMatchObject({ status: "HELD" });
    // Later its outcome is known, and its own hold may say so.
    await nonces.markUsed((kept as NonceKept).nonce, "0xlate");
    expect(await open(signer, 0)).toMatchObject({ status: "CONSUMED", tx_hash: "0xlate" });
  });

  test("withNonce does not send again under a request id whose nonce is used or recycled", async () => {
    const signer = newSigner();
    const nonces = createNonces({ url: app.url });
    const pay = () =>
      nonces.withNonce(signer, async () => ({ txHash: "0x1" }), { requestId: "pay-once" });
    await pay();
    await expect(pay()).rejects.toMatchObject({ code: "CONFLICT" });
  });
});

test("a lost reply is requested again under the same request id and gives one nonce", async () => {
  const proxy = await startProxy({ targetPort: Number(new URL(app.url).port) });
  const nonces = createNonces({ url: `http://127.0.0.1:${proxy.port}`, timeoutMs: 1_000 });
  const signer = newSigner();
  const cut = proxy.cutAfter((request) => request.includes("/nonces"));
  expect((await nonces.allocate(signer)).nonce).toBe(0);
  await cut;
  expect((await nonces.allocateMany(signer, 3)).map(({ nonce }) => nonce)).toEqual([1, 2, 3]);
  proxy.stop();
});

test("tenure signer ls, show, allocate, raise and resolve", async () => {
  const signer = newSigner();
  const run = async (...args: string[]) => {
    const program = startTenure(["signer", ...args, "--url", app.url]);
    const { code } = await program.exited;
    return { code, out: program.stdout(), err: program.stderr() };
  };
  expect((await run("raise", signer, "7", "--json")).code).toBe(0);
  const allocated = await run("allocate", signer, "--count", "2", "--request-id", "cli", "--json");
  expect(JSON.parse(allocated.out).items).toMatchObject([{ nonce: 7 }, { nonce: 8 }]);
  const shown = await run("show", signer);
  expect(shown.out).toMatch(/NEXT/);
  expect(shown.out).toMatch(/7 +HELD/);
  expect(JSON.parse((await run("ls", "--json", "--limit", "500")).out).items).toContainEqual(
    expect.objectContaining({ signer, next_nonce: 9, held: 2 }),
  );
  const early = await run("resolve", signer, "7", "--status", "RELEASED", "--reason", "unsent");
  expect([early.code, early.err]).toEqual([1, expect.stringContaining("CONFLICT")]);
  expect((await run("raise", signer, "3")).err).toMatch(/never lowered/);
  // Nothing is asked where there is no terminal.
  const far = await run("raise", signer, "90000");
  expect([far.code, far.err]).toEqual([1, expect.stringContaining("use --yes to confirm")]);
  expect((await run("raise", signer, "90000", "--yes")).out).toMatch(/90000/);
  expect((await run("raise", signer, "-3")).code).toBe(2);
});

test("tenure cluster shows the timeline, and confirm-timeline asks before it confirms", async () => {
  const run = async (...args: string[]) => {
    const program = startTenure(["cluster", ...args, "--url", app.url]);
    const { code } = await program.exited;
    return { code, out: program.stdout(), err: program.stderr() };
  };
  expect((await run()).out).toMatch(/timeline: confirmed/);
  const unasked = await run("confirm-timeline");
  expect([unasked.code, unasked.err]).toEqual([1, expect.stringContaining("nothing was changed")]);
  const confirmed = await run("confirm-timeline", "--yes", "--json");
  expect(JSON.parse(confirmed.out).timeline).toEqual({ state: "confirmed" });
});

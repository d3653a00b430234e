import { createAdmin, createNonces, NonceKept, probeSigner, ROUTES, viemChain } from "@tenure/sdk";
import { type Anvil, startAnvil } from "@tenure/testing/stores/anvil";
import type { TestDatabase } from "@tenure/testing/stores/database";
import { until } from "@tenure/testing/until";
import { createPublicClient, http } from "viem";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openApp, openAppDatabase, type TestApp } from "../../packages/server/testing/apps.ts";

let database: TestDatabase;
let app: TestApp;
let anvil: Anvil;
beforeAll(async () => {
  database = await openAppDatabase();
  [anvil, app] = await Promise.all([
    startAnvil(),
    openApp(database.uri, {
      TENURE_NONCE_LEASE_TTL_MS: "3000",
      TENURE_NONCE_HOLD_TTL_MS: "3000",
    }),
  ]);
});
afterAll(async () => {
  await app.stop();
  await anvil.stop();
  await database.drop();
});

test.each([
  "finalized",
  2,
] as const)("a number mined in a block that is taken back is not settled (finality %s)", async (finality) => {
  const accounts = await anvil.rpc<string[]>("eth_accounts");
  const from = accounts[finality === 2 ? 1 : 0]!;
  const signer = `eip155:31337:${from}`;
  const chain = viemChain(createPublicClient({ transport: http(anvil.url), cacheTime: 0 }), {
    finality,
  });
  const nonces = createNonces({ url: app.url });
  const admin = createAdmin({ url: app.url });
  const send = (nonce: number) =>
    anvil.rpc<string>("eth_sendTransaction", {
      ...{ from, to: from, value: "0x0", gas: "0x5208", nonce: `0x${nonce.toString(16)}` },
    });
  const mine = (blocks: number) => anvil.rpc("anvil_mine", `0x${blocks.toString(16)}`);
  await mine(3);
  // Sent, and its sender crashed before it could say so.
  const silent = nonces.withNonce(signer, async ({ nonce }) => {
    await send(nonce);
    throw new Error("crashed");
  });
  await expect(silent).rejects.toThrow(NonceKept);
  const open = async () => {
    const { items } = await admin.call(ROUTES.listNonces, { params: { signer }, query: {} });
    return items.map(({ status }) => status);
  };
  await until(async () => (await open())[0] === "QUARANTINED", { what: "the hold to run out" });
  await mine(1);
  expect(await probeSigner(admin, chain, signer)).toMatchObject({
    ...{ minedCount: 1, finalCount: 0, resolved: [], pending: [0] },
  });
  expect(await open()).toEqual(["QUARANTINED"]);

  await anvil.rpc("anvil_reorg", 1, []);
  expect(await probeSigner(admin, chain, signer)).toMatchObject({ minedCount: 0, pending: [] });
  expect(await open()).toEqual(["QUARANTINED"]);

  await send(0);
  await mine(3);
  expect(await probeSigner(admin, chain, signer)).toMatchObject({ resolved: [0], pending: [] });
  expect(await open()).toEqual(["CONSUMED"]);
});

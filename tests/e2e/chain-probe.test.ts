import { randomUUID } from "node:crypto";
import { createAdmin, createNonces, NonceKept, probeSigner, viemChain } from "@tenure/sdk";
import { startProcess } from "@tenure/testing/processes/process";
import type { TestDatabase } from "@tenure/testing/stores/database";
import { until } from "@tenure/testing/until";
import { createPublicClient, custom } from "viem";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FakeChain, Refused, TimedOut } from "../../examples/send-transactions/fake-chain.js";
import { openApp, openAppDatabase, type TestApp } from "../../packages/server/testing/apps.ts";

let database: TestDatabase;
let app: TestApp;
beforeAll(async () => {
  database = await openAppDatabase();
  const short = { TENURE_NONCE_LEASE_TTL_MS: "3000", TENURE_NONCE_HOLD_TTL_MS: "3000" };
  app = await openApp(database.uri, short);
});
afterAll(async () => {
  await app.stop();
  await database.drop();
});

const newAddress = () => `0x${randomUUID().replaceAll("-", "")}00000000`;

describe("the fake chain keeps the rules of nonces", () => {
  test("a gap queues what is above it, and filling it frees them", () => {
    const chain = new FakeChain();
    const from = newAddress();
    chain.send({ from, nonce: 0 });
    chain.send({ from, nonce: 2 });
    expect(chain.pool(from)).toEqual({ pending: [0], queued: [2] });
    expect(chain.mine()).toHaveLength(1);
    chain.send({ from, nonce: 1 });
    expect(chain.mine().map(({ nonce }) => nonce)).toEqual([1, 2]);
  });

  test("the fake chain refuses a nonce that is too low, known or underpriced, and takes a replacement", () => {
    const chain = new FakeChain();
    const from = newAddress();
    chain.send({ from, nonce: 0, hash: "0xa" });
    expect(() => chain.send({ from, nonce: 0, hash: "0xa" })).toThrow("already known");
    expect(() => chain.send({ from, nonce: 0, hash: "0xb" })).toThrow("underpriced");
    expect(chain.send({ from, nonce: 0, hash: "0xb", fee: 2 })).toBe("0xb");
    chain.mine();
    expect(chain.mined(from)).toEqual(["0xb"]);
    expect(() => chain.send({ from, nonce: 0 })).toThrow(new Refused("nonce too low"));
  });

  test("a lost answer was taken all the same, a dropped transaction was not mined", () => {
    const chain = new FakeChain();
    const from = newAddress();
    chain.loseAnswers(1);
    expect(() => chain.send({ from, nonce: 0 })).toThrow(TimedOut);
    chain.send({ from, nonce: 1 });
    chain.drop(from, 0);
    expect(chain.mine()).toEqual([]);
    expect(chain.pool(from)).toEqual({ pending: [], queued: [1] });
  });
});

describe("the probe, with viem", () => {
  const open = (chain: FakeChain) => {
    const address = newAddress();
    const client = createPublicClient({ transport: custom(chain) });
    return {
      address,
      signer: `eip155:1:${address}`,
      chain: viemChain(client),
      nonces: createNonces({ url: app.url }),
      admin: createAdmin({ url: app.url }),
    };
  };

  test("the probe raises the cursor of an account that has a history, and never lowers it", async () => {
    const fake = new FakeChain();
    const { address, signer, chain, nonces, admin } = open(fake);
    for (const nonce of [0, 1, 2]) fake.send({ from: address, nonce });
    fake.mine();
    expect(await probeSigner(admin, chain, signer)).toEqual({
      ...{ signer, minedCount: 3, finalCount: 3, nextNonce: 3 },
      ...{ resolved: [], pending: [], blocking: [] },
    });
    expect((await nonces.allocate(signer)).nonce).toBe(3);
    expect((await probeSigner(admin, chain, signer)).nextNonce).toBe(4);
  });

  test("the probe resolves nonces that were mined unreported, and reports those that block others", async () => {
    const fake = new FakeChain();
    const { address: from, signer, chain, nonces, admin } = open(fake);
    const send = (nonce: number) => ({ txHash: fake.send({ from, nonce }) });
    fake.loseAnswers(1);
    const silent = nonces.withNonce(signer, async ({ nonce }) => send(nonce));
    await expect(silent).rejects.toThrow(NonceKept);
    await nonces.withNonce(signer, async ({ nonce }) => send(nonce)); // 1
    const dropped = nonces.withNonce(signer, async () => Promise.reject(new Error("crashed")));
    await expect(dropped).rejects.toThrow("nonce 2"); // its holder is gone, and it never left
    await nonces.withNonce(signer, async ({ nonce }) => send(nonce)); // 3 waits behind it
    fake.mine();
    const resolved: number[] = [];
    const report = await until(
      async () => {
        const seen = await probeSigner(admin, chain, signer);
        resolved.push(...seen.resolved);
        return resolved.length > 0 && seen.blocking.length > 0 && seen;
      },
      { what: "both holds to run out", everyMs: 100, deadlineMs: 60_000 },
    );
    expect(report).toMatchObject({ minedCount: 2, nextNonce: 4, blocking: [2] });
    expect(resolved).toEqual([0]);
  });
});

test("examples/send-transactions ends with every number used and nothing open", async () => {
  const program = startProcess({
    command: process.execPath,
    args: ["examples/send-transactions/main.js"],
    env: { TENURE_URL: app.url },
  });
  expect(await program.exited).toEqual({ code: 0, signal: null });
  expect(program.stdout()).toMatch(/payment-3: nonce \d given back/);
  expect(program.stdout().match(/kept, its outcome is unknown/g)).toHaveLength(2);
  expect(program.stdout()).toMatch(/resolved by the chain/);
  expect(program.stdout()).toMatch(/done: 9 mined, next nonce (9|10), nothing open$/);
});

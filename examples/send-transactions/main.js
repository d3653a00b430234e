// Ten payments from one account by three senders, on a chain that loses answers. Tenure allocates the nonces.
//
//   npm start                                         (in another terminal)
//   node examples/send-transactions/main.js
//
// Holds live 40 s by default. To see the end sooner, start the server with
//   TENURE_NONCE_LEASE_TTL_MS=3000 TENURE_NONCE_HOLD_TTL_MS=3000 npm start

import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { createAdmin, createNonces, NonceKept, probeSigner, ROUTES, viemChain } from "@tenure/sdk";
import { findDevToken } from "@tenure/sdk/dev-token";
import { FakeChain, Refused } from "./fake-chain.js";

const url = process.env.TENURE_URL ?? "http://127.0.0.1:7070";
const token = process.env.TENURE_TOKEN ?? findDevToken(url);
const address = `0x${randomUUID().replaceAll("-", "")}00000000`;
const signer = `eip155:1:${address}`;
const chain = new FakeChain();
const nonces = createNonces({ url, token });
const admin = createAdmin({ url, token });

/** Sends one payment under its own request id: sent again, it is the same payment with the same nonce. */
async function pay(/** @type {string} */ payment) {
  try {
    const { nonce, broadcast } = await nonces.withNonce(
      signer,
      async ({ nonce }) => {
        // Certainly not broadcast: the nonce is free again.
        if (payment === "payment-3") return { unsent: "the balance is too low" };
        try {
          return { txHash: chain.send({ from: address, nonce }) };
        } catch (error) {
          if (error instanceof Refused) return { unsent: error.message };
          throw error; // the outcome is unknown, so withNonce keeps the nonce
        }
      },
      { requestId: payment },
    );
    console.log(
      `${payment}: nonce ${nonce.nonce} ${"txHash" in broadcast ? "sent" : "given back"}`,
    );
  } catch (error) {
    if (!(error instanceof NonceKept)) throw error;
    console.log(`${payment}: nonce ${error.nonce.nonce} kept, its outcome is unknown`);
  }
}

const payments = Array.from({ length: 10 }, (_, index) => `payment-${index}`);
await Promise.all(payments.slice(0, 5).map(pay));
chain.loseAnswers(2);
await Promise.all(payments.slice(5).map(pay));

// The chain resolves unknown outcomes: a mined nonce is used.
const account = {
  /** viem's createPublicClient has the same method for a real chain. */
  getTransactionCount: async (/** @type {{ address: string }} */ { address }) =>
    Number(await chain.request({ method: "eth_getTransactionCount", params: [address, "latest"] })),
};
for (;;) {
  chain.mine();
  const { minedCount, resolved, blocking } = await probeSigner(admin, viemChain(account), signer);
  if (resolved.length > 0) console.log(`resolved by the chain: ${resolved.join(", ")}`);
  for (const nonce of blocking) {
    // A nonce that no sender will use: fill it, so that the ones above can be mined.
    const { items } = await admin.call(ROUTES.listNonces, {
      params: { signer },
      query: { status: "RELEASED" },
    });
    if (items.some((row) => row.nonce === nonce)) await pay(`fill-${nonce}`);
  }
  const view = await admin.call(ROUTES.readSigner, { params: { signer } });
  if (
    view.held + view.quarantined + view.released === 0 &&
    chain.pool(address).queued.length === 0
  ) {
    console.log(`done: ${minedCount} mined, next nonce ${view.next_nonce}, nothing open`);
    break;
  }
  await wait(200);
}

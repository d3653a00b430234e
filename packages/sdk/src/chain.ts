import { isTenureError, type NonceRecord, type NonceStatus } from "@tenure/protocol";
import { type Admin, ROUTES } from "./admin.ts";
import { allPages } from "./pages.ts";

/** What a chain knows about an account. */
export interface Chain {
  /** How many transactions of the account are mined: the smallest number that is still free on the chain. */
  minedCount(signer: string): Promise<number>;
}

export interface ProbeReport {
  signer: string;
  minedCount: number;
  nextNonce: number;
  /** Numbers below the mined count that nobody had settled: the chain says they are used. */
  resolved: number[];
  /** Numbers that must be filled before anything above them can be mined. */
  blocking: number[];
}

/**
 * Brings what Tenure knows about a signer in line with the chain, in the safe direction only: the cursor is raised
 * to the mined count, never lowered; open numbers below it are used up, whoever used them. Numbers at or above it
 * are only reported: a pending transaction may still be mined, so nothing frees them but their holder or an operator.
 *
 * Needs an admin token.
 */
export async function probeSigner(
  admin: Admin,
  chain: Chain,
  signer: string,
): Promise<ProbeReport> {
  const minedCount = await chain.minedCount(signer);
  const nextNonce = await raise(admin, signer, minedCount);
  const gaps = [
    ...(await listAll(admin, signer, "QUARANTINED")),
    ...(await listAll(admin, signer, "RELEASED")),
  ];
  const resolved: number[] = [];
  for (const { nonce } of gaps.filter((gap) => gap.nonce < minedCount)) {
    if (await resolve(admin, signer, nonce)) resolved.push(nonce);
  }
  // Only a gap that something was issued above of holds anything up.
  const blocking = gaps
    .map(({ nonce }) => nonce)
    .filter((nonce) => nonce >= minedCount && nonce < nextNonce - 1)
    .sort((a, b) => a - b);
  return { signer, minedCount, nextNonce, resolved, blocking };
}

/** The part of a viem client that is needed; `createPublicClient` of viem 2 gives one. */
export interface ViemClient {
  getTransactionCount(args: { address: `0x${string}`; blockTag: "latest" }): Promise<number>;
}

/** A chain through viem. Signers are named `eip155:<chain id>:0x…`; the client's chain is the caller's choice. */
export function viemChain(client: ViemClient): Chain {
  return {
    async minedCount(signer) {
      const address = /(?:^|:)(0x[0-9a-fA-F]{40})$/.exec(signer)?.[1];
      if (!address) throw new Error(`signer ${signer} does not end in an address`);
      return client.getTransactionCount({ address: address as `0x${string}`, blockTag: "latest" });
    },
  };
}

async function raise(admin: Admin, signer: string, minedCount: number): Promise<number> {
  try {
    const body = { next_nonce: minedCount };
    return (await admin.call(ROUTES.raiseSigner, { params: { signer }, body })).next_nonce;
  } catch (error) {
    // It is above already, as it should be while transactions are under way.
    if (!isTenureError(error, "CONFLICT")) throw error;
    return (await admin.call(ROUTES.readSigner, { params: { signer } })).next_nonce;
  }
}

async function resolve(admin: Admin, signer: string, nonce: number): Promise<boolean> {
  try {
    const body = { status: "CONSUMED" as const, reason: "mined, by the chain's own count" };
    await admin.call(ROUTES.resolveNonce, { params: { signer, nonce }, body });
    return true;
  } catch (error) {
    // Handed out again a moment ago. Its holder will hear "nonce too low" from the chain, and the next probe sees it.
    if (isTenureError(error, "CONFLICT")) return false;
    throw error;
  }
}

const listAll = (admin: Admin, signer: string, status: NonceStatus): Promise<NonceRecord[]> =>
  allPages((page) =>
    admin.call(ROUTES.listNonces, { params: { signer }, query: { status, ...page } }),
  );

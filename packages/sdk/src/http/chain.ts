import { isTenureError, type NonceRecord, type NonceStatus } from "@tenure/protocol";
import { type Admin, allPages, ROUTES } from "./admin.ts";

/** Reads the transaction counts of an account from a chain. */
export interface Chain {
  /** Number of mined transactions of the account, which is its smallest unused nonce on the chain. */
  minedCount(signer: string): Promise<number>;
  /** The same at a block that no reorganisation reverts. Without it every mined transaction counts as final. */
  finalCount?(signer: string): Promise<number>;
}

export interface ProbeReport {
  signer: string;
  minedCount: number;
  finalCount: number;
  nextNonce: number;
  /** Open nonces that are marked as used: their transactions are final. */
  resolved: number[];
  /** Open nonces whose transactions are mined and may still be reverted; a later probe marks them. */
  pending: number[];
  /** Nonces that must be used before any above them can be mined. */
  blocking: number[];
}

/**
 * Reconciles a signer with the chain, in the safe direction only. Open nonces below the final count are marked as used. The
 * cursor is raised to the mined count, never lowered, but not above an open nonce that is mined and not final: a raise marks
 * every nonce below it as used, and a reorganisation could free that one again. Nonces at or above the mined count are only
 * reported: a pending transaction may still be mined, so only their holder or an operator frees them.
 *
 * Needs an admin token.
 */
export async function probeSigner(
  admin: Admin,
  chain: Chain,
  signer: string,
): Promise<ProbeReport> {
  const minedCount = await chain.minedCount(signer);
  const finalCount = Math.min(minedCount, (await chain.finalCount?.(signer)) ?? minedCount);
  // Read before the raise, which marks every nonce below it: the report lists them either way.
  const held = await listAll(admin, signer, "HELD");
  const gaps = [
    ...(await listAll(admin, signer, "QUARANTINED")),
    ...(await listAll(admin, signer, "RELEASED")),
  ];
  const pending = [...held, ...gaps]
    .map(({ nonce }) => nonce)
    .filter((nonce) => nonce >= finalCount && nonce < minedCount)
    .sort((a, b) => a - b);
  const raiseTo = pending.length > 0 ? finalCount : minedCount;
  const { nextNonce, raised } = await raise(admin, signer, raiseTo);
  const resolved: number[] = [];
  for (const { nonce } of (raised ? [...held, ...gaps] : gaps).filter(isFinal)) {
    if (raised || (await resolve(admin, signer, nonce))) resolved.push(nonce);
  }
  // A gap blocks only if a nonce above it was issued.
  const blocking = gaps
    .map(({ nonce }) => nonce)
    .filter((nonce) => nonce >= minedCount && nonce < nextNonce - 1)
    .sort((a, b) => a - b);
  return { signer, minedCount, finalCount, nextNonce, resolved, pending, blocking };

  function isFinal({ nonce }: NonceRecord): boolean {
    return nonce < finalCount;
  }
}

/** The part of a viem client that is needed; `createPublicClient` of viem 2 returns one. */
export interface ViemClient {
  getTransactionCount(
    args:
      | { address: `0x${string}`; blockTag: "latest" | "safe" | "finalized" }
      | { address: `0x${string}`; blockNumber: bigint },
  ): Promise<number>;
  /** Only for a finality in blocks. */
  getBlockNumber?(): Promise<bigint>;
}

export interface ViemChainOptions {
  /**
   * Which blocks a reorganisation cannot revert: those at or below the chain's own `finalized` (the default) or `safe`
   * block, or a depth in blocks, for a chain that has no such block.
   */
  finality?: "finalized" | "safe" | number;
}

/** Reads a chain through viem. Signers are named `eip155:<chain id>:0x…`; the caller chooses the client of that chain. */
export function viemChain(
  client: ViemClient,
  { finality = "finalized" }: ViemChainOptions = {},
): Chain {
  return {
    minedCount: (signer) =>
      client.getTransactionCount({ address: addressOf(signer), blockTag: "latest" }),
    async finalCount(signer) {
      const address = addressOf(signer);
      if (typeof finality === "number") return countAtDepth(client, address, finality);
      return client.getTransactionCount({ address, blockTag: finality }).catch((cause: unknown) => {
        const hint = `give viemChain a finality in blocks if the chain has no ${finality} block`;
        throw new Error(`could not read the ${finality} transaction count; ${hint}`, { cause });
      });
    },
  };
}

async function countAtDepth(
  client: ViemClient,
  address: `0x${string}`,
  depth: number,
): Promise<number> {
  if (!client.getBlockNumber) throw new Error("a finality in blocks needs client.getBlockNumber");
  const blockNumber = (await client.getBlockNumber()) - BigInt(depth);
  return blockNumber < 0n ? 0 : client.getTransactionCount({ address, blockNumber });
}

function addressOf(signer: string): `0x${string}` {
  const address = /(?:^|:)(0x[0-9a-fA-F]{40})$/.exec(signer)?.[1];
  if (!address) throw new Error(`signer ${signer} does not end in an address`);
  return address as `0x${string}`;
}

async function raise(
  admin: Admin,
  signer: string,
  minedCount: number,
): Promise<{ nextNonce: number; raised: boolean }> {
  try {
    // Confirmed, because the count comes from the chain and not from an operator.
    const body = { next_nonce: minedCount, confirm: true };
    const view = await admin.call(ROUTES.raiseSigner, { params: { signer }, body });
    return { nextNonce: view.next_nonce, raised: true };
  } catch (error) {
    // The cursor is above already, as expected while transactions are pending.
    if (!isTenureError(error, "CONFLICT")) throw error;
    const view = await admin.call(ROUTES.readSigner, { params: { signer } });
    return { nextNonce: view.next_nonce, raised: false };
  }
}

async function resolve(admin: Admin, signer: string, nonce: number): Promise<boolean> {
  try {
    const body = { status: "CONSUMED" as const, reason: "mined, by the chain's own count" };
    await admin.call(ROUTES.resolveNonce, { params: { signer, nonce }, body });
    return true;
  } catch (error) {
    // The nonce was allocated again. Its holder gets "nonce too low" from the chain, and the next probe sees it.
    if (isTenureError(error, "CONFLICT")) return false;
    throw error;
  }
}

const listAll = (admin: Admin, signer: string, status: NonceStatus): Promise<NonceRecord[]> =>
  allPages((page) =>
    admin.call(ROUTES.listNonces, { params: { signer }, query: { status, ...page } }),
  );

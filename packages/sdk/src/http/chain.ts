import { isTenureError, type NonceRecord, type NonceStatus } from "@tenure/protocol";
import { type Admin, allPages, ROUTES } from "./admin.ts";

/** What a chain knows about an account. */
export interface Chain {
  /** How many transactions of the account are mined: the smallest number that is still free on the chain. */
  minedCount(signer: string): Promise<number>;
  /** The same as of a block that no reorganisation takes back. Without it every mined transaction counts as final. */
  finalCount?(signer: string): Promise<number>;
}

export interface ProbeReport {
  signer: string;
  minedCount: number;
  finalCount: number;
  nextNonce: number;
  /** Open numbers that are settled as used: the chain says so, for good. */
  resolved: number[];
  /** Open numbers that are mined and may still be taken back; a later probe settles them. */
  pending: number[];
  /** Numbers that must be filled before anything above them can be mined. */
  blocking: number[];
}

/**
 * Brings what Tenure knows about a signer in line with the chain, in the safe direction only. Open numbers below the final
 * count are used up, and settled so. The cursor is raised to the mined count, never lowered, but not above an open number
 * that is mined and not final: a raise settles what is below it, and a reorganisation could free that number again.
 * Numbers at or above the mined count are only reported: a pending transaction may still be mined, so nothing frees them
 * but their holder or an operator.
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
  // Read before the raise, which settles everything below it by itself: the report names it either way.
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
  // Only a gap that something was issued above of holds anything up.
  const blocking = gaps
    .map(({ nonce }) => nonce)
    .filter((nonce) => nonce >= minedCount && nonce < nextNonce - 1)
    .sort((a, b) => a - b);
  return { signer, minedCount, finalCount, nextNonce, resolved, pending, blocking };

  function isFinal({ nonce }: NonceRecord): boolean {
    return nonce < finalCount;
  }
}

/** The part of a viem client that is needed; `createPublicClient` of viem 2 gives one. */
export interface ViemClient {
  getTransactionCount(
    args:
      | { address: `0x${string}`; blockTag: "latest" | "safe" | "finalized" }
      | { address: `0x${string}`; blockNumber: bigint },
  ): Promise<number>;
  /** Needed for a finality in blocks only. */
  getBlockNumber?(): Promise<bigint>;
}

export interface ViemChainOptions {
  /**
   * Which blocks a reorganisation cannot take back: those at or below the chain's own `finalized` (the default) or `safe`
   * block, or all but the newest so many, for a chain that has no such block.
   */
  finality?: "finalized" | "safe" | number;
}

/** A chain through viem. Signers are named `eip155:<chain id>:0x…`; the client's chain is the caller's choice. */
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
    // Confirmed: the chain's own count is no typing mistake.
    const body = { next_nonce: minedCount, confirm: true };
    const view = await admin.call(ROUTES.raiseSigner, { params: { signer }, body });
    return { nextNonce: view.next_nonce, raised: true };
  } catch (error) {
    // It is above already, as it should be while transactions are under way.
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
    // Handed out again a moment ago. Its holder will hear "nonce too low" from the chain, and the next probe sees it.
    if (isTenureError(error, "CONFLICT")) return false;
    throw error;
  }
}

const listAll = (admin: Admin, signer: string, status: NonceStatus): Promise<NonceRecord[]> =>
  allPages((page) =>
    admin.call(ROUTES.listNonces, { params: { signer }, query: { status, ...page } }),
  );

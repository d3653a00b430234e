// A fake chain: it has the nonce rules of an EVM node and nothing else, and fails on request.

/**
 * @typedef {{ hash: string, from: string, nonce: number, fee: number }} Transaction
 * @typedef {{ mined: Transaction[], pool: Map<number, Transaction> }} Account
 */

/** The transaction was accepted, but its answer was lost: the sender does not know the outcome. */
export class TimedOut extends Error {}

/** The node refused the transaction. */
export class Refused extends Error {}

export class FakeChain {
  /** @type {Map<string, Account>} */
  #accounts = new Map();
  #loseAnswers = 0;
  #sent = 0;

  /** @param {string} address */
  #account(address) {
    const key = address.toLowerCase();
    const account = this.#accounts.get(key) ?? { mined: [], pool: new Map() };
    this.#accounts.set(key, account);
    return account;
  }

  /**
   * Takes a transaction into the pool, or throws. It waits there as "queued" behind a gap, else as "pending".
   * @param {{ from: string, nonce: number, fee?: number, hash?: string }} transaction
   */
  send({ from, nonce, fee = 1, hash = `0x${(++this.#sent).toString(16).padStart(64, "0")}` }) {
    const { mined, pool } = this.#account(from);
    if (nonce < mined.length) throw new Refused("nonce too low");
    const present = pool.get(nonce);
    if (present?.hash === hash) throw new Refused("already known");
    if (present && fee < present.fee * 1.1)
      throw new Refused("replacement transaction underpriced");
    pool.set(nonce, { hash, from, nonce, fee });
    if (this.#loseAnswers > 0) {
      this.#loseAnswers -= 1;
      throw new TimedOut("the node did not answer in time");
    }
    return hash;
  }

  /** The next `count` transactions are accepted, but their senders get no answer. @param {number} count */
  loseAnswers(count) {
    this.#loseAnswers += count;
  }

  /** Forgets a transaction that was not mined, as a full pool does. @param {string} from @param {number} nonce */
  drop(from, nonce) {
    return this.#account(from).pool.delete(nonce);
  }

  /** Mines the transactions without a gap below them. @returns {Transaction[]} */
  mine() {
    /** @type {Transaction[]} */
    const block = [];
    for (const account of this.#accounts.values()) {
      let next = account.pool.get(account.mined.length);
      while (next) {
        account.pool.delete(next.nonce);
        account.mined.push(next);
        block.push(next);
        next = account.pool.get(account.mined.length);
      }
    }
    return block;
  }

  /** @param {string} address */
  mined(address) {
    return this.#account(address).mined.map(({ hash }) => hash);
  }

  /** Nonces in the pool: those that could be mined now, and those behind a gap. @param {string} address */
  pool(address) {
    const { mined, pool } = this.#account(address);
    const numbers = [...pool.keys()].sort((a, b) => a - b);
    const pending = numbers.filter((nonce, index) => nonce === mined.length + index);
    return { pending, queued: numbers.slice(pending.length) };
  }

  /**
   * As a node answers JSON-RPC, so that viem can ask it: `createPublicClient({ transport: custom(chain) })`.
   * @param {{ method: string, params?: unknown }} call
   */
  async request({ method, params }) {
    const [address, tag] = /** @type {string[]} */ (params ?? []);
    if (method === "eth_chainId") return "0x1";
    if (method !== "eth_getTransactionCount")
      throw new Error(`${method} is not part of this chain`);
    const { mined } = this.#account(address ?? "");
    const pending = tag === "pending" ? this.pool(address ?? "").pending.length : 0;
    return `0x${(mined.length + pending).toString(16)}`;
  }
}

import { challengeText } from "@tenure/protocol";
import { isSignedBy } from "../access/signature.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Random } from "../kernel/random.ts";

export interface Challenge {
  readonly nonce: string;
  /** `true` at most once, within the time limit, for a signature by the key that is the address. */
  answer(reply: { address: string; bootId: string; signature: string }): boolean;
}

const CHALLENGE_LIMIT_MS = 10_000;

/** What a node must sign to prove its address. Made for one socket, valid for one try. */
export function createChallenge(options: {
  serverId: string;
  clock: Clock;
  random: Random;
}): Challenge {
  const nonce = options.random.bytes(24).toString("base64url");
  const madeAtMs = options.clock.monotonicMs();
  let used = false;
  return {
    nonce,
    answer({ address, bootId, signature }) {
      if (used || options.clock.monotonicMs() - madeAtMs > CHALLENGE_LIMIT_MS) return false;
      used = true;
      const text = challengeText({ server_id: options.serverId, nonce, address, boot_id: bootId });
      return isSignedBy(address, text, Buffer.from(signature, "base64"));
    },
  };
}

import { createPublicKey, verify } from "node:crypto";
import { challengeText, decodeBase58 } from "@tenure/protocol";
import type { Clock } from "../kernel/clock.ts";
import type { Random } from "../kernel/random.ts";

export interface Challenge {
  readonly nonce: string;
  /** `true` at most once, within the time limit, for a signature by the key that is the address. */
  answer(reply: { address: string; bootId: string; signature: string }): boolean;
}

const CHALLENGE_LIMIT_MS = 10_000;

/** What a node must sign to show that it is who it says. Made for one socket and good for one try. */
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

/** The DER head of an ed25519 public key; the 32 bytes of the key follow it. */
const SPKI_HEAD = Buffer.from("302a300506032b6570032100", "hex");

function isSignedBy(address: string, text: string, signature: Buffer): boolean {
  const bytes = decodeBase58(address);
  if (bytes?.length !== 32 || signature.length !== 64) return false;
  try {
    const key = createPublicKey({
      key: Buffer.concat([SPKI_HEAD, bytes]),
      format: "der",
      type: "spki",
    });
    return verify(null, Buffer.from(text), key, signature);
  } catch {
    return false; // 32 bytes that are no point of the curve
  }
}

import { createHmac, timingSafeEqual } from "node:crypto";
import { TenureError } from "@tenure/protocol";
import type { Db } from "../store/db.ts";
import type { TokenSource } from "./authenticator.ts";
import { findCurrentTerm, readChildTokenKey } from "./child-token-store.ts";
import { childName } from "./principal.ts";

const PREFIX = "tnrc_";
const ID_BYTES = 16;
const GENERATION_BYTES = 8;
const TAG_BYTES = 32;
const TOKEN_BYTES = ID_BYTES + GENERATION_BYTES + TAG_BYTES;
const FORM = /^tnrc_[A-Za-z0-9_-]{75}$/;

interface Term {
  id: string;
  generation: number;
}

/** The tokens of children: one per deployment and generation. */
export interface ChildTokens extends TokenSource {
  /** Makes tokens. Rejects with `DEPENDENCY_DOWN` until the key was read once. */
  maker(): Promise<(term: Term) => string>;
}

/**
 * A token is signed and not stored: deployment, generation, and a tag made with the fleet's key. Each call reads the row, so
 * that a token ends with its term. Without Postgres neither the present nor a former holder is known: both get
 * `DEPENDENCY_DOWN`.
 */
export function createChildTokens(db: Db): ChildTokens {
  let key: string | undefined;

  async function knownKey(): Promise<string> {
    key ??= await readChildTokenKey(db);
    return key;
  }

  return {
    async maker() {
      const known = await knownKey();
      return (term) => makeToken(term, known);
    },
    async find({ secret }) {
      if (!FORM.test(secret)) return undefined;
      const term = readToken(secret, await knownKey());
      if (!term) return undefined;
      const found = await findCurrentTerm(db, term);
      if (!found) {
        const reason = `term ${term.generation} of deployment ${term.id} is over, and with it this token`;
        throw new TenureError("UNAUTHENTICATED", { reason });
      }
      const { tenant, name, grants } = found;
      return {
        ...{ name: childName(term.id), role: "child", tenant, deployment: { id: term.id, name } },
        ...{ pools: grants.pools ?? [], signers: grants.signers ?? [] },
      };
    },
  };
}

function makeToken({ id, generation }: Term, key: string): string {
  const body = Buffer.alloc(ID_BYTES + GENERATION_BYTES);
  body.write(id.replaceAll("-", ""), "hex");
  body.writeBigUInt64BE(BigInt(generation), ID_BYTES);
  return PREFIX + Buffer.concat([body, tagOf(body, key)]).toString("base64url");
}

/** `undefined` for a token that no instance made. */
function readToken(token: string, key: string): Term | undefined {
  const bytes = Buffer.from(token.slice(PREFIX.length), "base64url");
  if (bytes.length !== TOKEN_BYTES) return undefined;
  const body = bytes.subarray(0, ID_BYTES + GENERATION_BYTES);
  if (!timingSafeEqual(tagOf(body, key), bytes.subarray(body.length))) return undefined;
  const hex = body.toString("hex", 0, ID_BYTES);
  const id = [
    hex.slice(0, 8),
    hex.slice(8, 12),
    hex.slice(12, 16),
    hex.slice(16, 20),
    hex.slice(20),
  ];
  return { id: id.join("-"), generation: Number(body.readBigUInt64BE(ID_BYTES)) };
}

const tagOf = (body: Buffer, key: string): Buffer =>
  createHmac("sha256", key).update("tenure-child-token-v1:").update(body).digest();

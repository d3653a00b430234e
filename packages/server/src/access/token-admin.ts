import {
  JOIN_SECONDS_DEFAULT,
  JOIN_SECONDS_MAX,
  JOIN_TOKEN_PREFIX,
  TenureError,
  TOKEN_PREFIX,
  type TokenCreate,
  type TokenCreated,
  type TokenRotate,
  type TokenScopes,
  type TokenView,
} from "@tenure/protocol";
import { type Act, recorded } from "../audit/actor.ts";
import { tokenSha256 } from "../config.ts";
import type { Clock } from "../kernel/clock.ts";
import { type Random, uuid7 } from "../kernel/random.ts";
import type { Db } from "../store/db.ts";
import type { Principal } from "./principal.ts";
import type { TableTokens } from "./table-tokens.ts";
import { ruleOf, viewOf } from "./token-codec.ts";
import { requireRights } from "./token-rights.ts";
import {
  findToken,
  insertToken,
  listTokens,
  revokeToken,
  rotateToken,
  type TokenFilter,
  type TokenRow,
} from "./token-store.ts";

export interface TokenAdminOptions {
  db: Db;
  clock: Clock;
  random: Random;
  tokens: Pick<TableTokens, "written" | "lookUp" | "nowMs">;
}

/** An admin, the tenant that it acts in (`*` = all), and its audit entry. */
export interface TokenWrite {
  principal: Principal;
  tenant: string;
  act: Act | undefined;
}

export type TokenAdmin = ReturnType<typeof createTokenAdmin>;

const SECRET_BYTES = 32;

/** Creates, lists, revokes and rotates the tokens of the table. */
export function createTokenAdmin({ db, clock, random, tokens }: TokenAdminOptions) {
  const newId = () => uuid7(random, clock.wallMs());
  const newSecret = (prefix: string) => prefix + random.bytes(SECRET_BYTES).toString("base64url");
  const shown = (row: TokenRow): TokenView => viewOf(row, tokens.nowMs());

  async function read(id: string, tenant: string): Promise<TokenRow> {
    const row = await findToken(db, id, tenant);
    if (!row) throw new TenureError("NOT_FOUND", { what: "token", id });
    return row;
  }

  /** Reads the row, checks the rights to it, and writes it if it is still the same. */
  async function change(
    id: string,
    { principal, tenant, act }: TokenWrite,
    write: (tx: Db, row: TokenRow) => Promise<TokenRow | undefined>,
  ): Promise<TokenView> {
    const row = await read(id, tenant);
    requireRights(principal, { ...row, scopes: scopesOf(row) });
    const written = await recorded(db, act, {
      write: (tx) => write(tx, row),
      subjectOf: (done) => done && `${done.name} ${done.id}`,
    });
    if (!written)
      throw conflict("the token was changed by another request at the same time; read it again");
    tokens.written(written);
    return shown(written);
  }

  return {
    async create(given: TokenCreate, tenant: string, { principal, act }: TokenWrite) {
      const isJoin = given.join === true;
      const { name, role, scopes = {} } = given;
      const secret = newSecret(isJoin ? JOIN_TOKEN_PREFIX : TOKEN_PREFIX);
      const sha256 = tokenSha256(secret);
      const rule = ruleOf({ name, role, tenant, sha256, scopes, is_join: isJoin });
      if ("problem" in rule) throw invalid(rule.problem);
      requireRights(principal, { role, tenant, scopes });
      const expiresInSeconds =
        given.expires_in_seconds ?? (isJoin ? JOIN_SECONDS_DEFAULT : undefined);
      if (isJoin && (expiresInSeconds ?? 0) > JOIN_SECONDS_MAX)
        throw invalid(`expires_in_seconds: a join token lasts at most ${JOIN_SECONDS_MAX} seconds`);
      const token = {
        ...{ id: newId(), name, role, tenant, scopes, sha256, isJoin, expiresInSeconds },
        createdBy: principal.name,
      };
      const row = await recorded(db, act, {
        write: (tx) => insertToken(tx, token),
        subjectOf: (done) => done && `${done.name} ${done.id}`,
      });
      if (!row)
        throw conflict(`there are too many tokens of tenant ${tenant}, or in all; revoke some`);
      tokens.written(row);
      return { ...shown(row), secret } satisfies TokenCreated;
    },
    async list(filter: TokenFilter): Promise<TokenView[]> {
      return (await listTokens(db, filter)).map(shown);
    },
    async read(id: string, tenant: string): Promise<TokenView> {
      return shown(await read(id, tenant));
    },
    revoke: (id: string, write: TokenWrite) => change(id, write, (tx, row) => revokeToken(tx, row)),
    async rotate(id: string, given: TokenRotate, write: TokenWrite): Promise<TokenCreated> {
      const secret = newSecret(TOKEN_PREFIX);
      const view = await change(id, write, (tx, row) => {
        const { state, join } = shown(row);
        if (join) throw conflict("a join token cannot be rotated; create another");
        if (state !== "live") throw conflict(`the token is ${state}; create another`);
        return rotateToken(tx, {
          ...{ id: row.id, version: row.version, sha256: tokenSha256(secret) },
          graceSeconds: given.grace_seconds ?? 0,
          expiresInSeconds: given.expires_in_seconds,
        });
      });
      return { ...view, secret };
    },
  };
}

function scopesOf({ scopes }: TokenRow): TokenScopes {
  return typeof scopes === "object" && scopes !== null ? (scopes as TokenScopes) : {};
}

const conflict = (reason: string): TenureError => new TenureError("CONFLICT", { reason });
const invalid = (reason: string): TenureError => new TenureError("INVALID_REQUEST", { reason });

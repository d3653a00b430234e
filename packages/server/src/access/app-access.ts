import type { AuthToken } from "../config/tokens.ts";
import type { Config } from "../config.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import type { PostgresStore } from "../store/db.ts";
import { type Authenticator, createAuthenticator } from "./authenticator.ts";
import { type ChildTokens, createChildTokens } from "./child-tokens.ts";
import { createConfigTokens } from "./config-tokens.ts";
import { KnownTokens } from "./known-tokens.ts";
import { createNodeEnrolment, type NodeEnrolment } from "./node-enrolment.ts";
import type { Principal } from "./principal.ts";
import { createTableTokens, type TableTokens } from "./table-tokens.ts";
import { createTokenAdmin, type TokenAdmin } from "./token-admin.ts";
import { createTokenWatches, type TokenWatches } from "./token-watches.ts";

export interface AppAccessOptions {
  config: Config;
  db: PostgresStore;
  clock: Clock;
  random: Random;
  log: Log;
}

export interface AppAccess {
  authenticator: Authenticator;
  tableTokens: TableTokens;
  childTokens: ChildTokens;
  tokenAdmin: TokenAdmin;
  nodeEnrolment: NodeEnrolment;
  /** All tokens, for rules that depend on which tenants there are. */
  knownTokens: KnownTokens;
  watches: TokenWatches;
  /** Replaces the tokens of the settings. Throws, with a sentence for the operator, for a change that needs a restart. */
  replaceConfigTokens(tokens: readonly AuthToken[]): void;
}

/** Creates the sources of tokens, and what depends on all of them. */
export function createAppAccess(options: AppAccessOptions): AppAccess {
  const { config } = options;
  const { tokens, peer_token: peerToken, offline_max_seconds } = config.auth;
  const open = tokens.length === 0;
  const knownTokens = new KnownTokens([() => configTokens.tokens(), () => tableTokens.rules()]);
  const principalOf = (rule: AuthToken): Principal => ({
    ...rule,
    operates: knownTokens.operates(rule),
  });
  const onChange = () => {
    knownTokens.changed();
    watches.recheck();
  };
  const configTokens = createConfigTokens({ tokens, peerToken, principalOf });
  const tableTokens = createTableTokens({
    ...options,
    ...{ offlineMs: offline_max_seconds * 1_000, principalOf, onChange },
  });
  const childTokens = createChildTokens(options.db);
  const sources = [configTokens, tableTokens, childTokens];
  const authenticator = createAuthenticator({ open, sources });
  const watches = createTokenWatches(authenticator.current);
  return {
    ...{ authenticator, tableTokens, childTokens, knownTokens, watches },
    tokenAdmin: createTokenAdmin({ ...options, tokens: tableTokens }),
    nodeEnrolment: createNodeEnrolment({ ...options, tokens: tableTokens }),
    replaceConfigTokens(given) {
      if (open !== (given.length === 0))
        throw new Error(
          "a server that has tokens cannot lose all of them, nor one without tokens get some, without a restart",
        );
      configTokens.replace(given);
      onChange();
    },
  };
}

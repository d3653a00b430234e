import {
  isTenureError,
  type TokenCreate,
  type TokenCreated,
  TokenRole,
  type TokenScopes,
  type TokenView,
} from "@tenure/protocol";
import { type Admin, ROUTES } from "@tenure/sdk";
import { Command, InvalidArgumentError, Option } from "commander";
import type { Context } from "../context.ts";
import { count, wholeNumber } from "../numbers.ts";
import { cut, fields, print, table } from "../output.ts";
import { printable } from "../printable.ts";
import { connect, type RemoteFlags, withServerFlags } from "../remote.ts";

/** `tenure token create | ls | rotate | revoke`. */
export function tokenCommand(_: Context): Command {
  return new Command()
    .addCommand(create())
    .addCommand(ls())
    .addCommand(rotate())
    .addCommand(revoke());
}

interface CreateFlags extends RemoteFlags {
  name?: string;
  role?: TokenCreate["role"];
  expires?: number;
  join?: boolean;
  signers?: string[];
  pools?: string[];
  addresses?: string[];
  tenants?: string[];
  labels?: Record<string, string>;
  nodeUnit?: boolean;
  capacityMax?: number;
  nodesMax?: number;
}

function create(): Command {
  return subcommand("create", "create a token, or a join token; prints its secret once")
    .option("--name <name>", "name of the token; of a join token: the name of its node")
    .addOption(new Option("--role <role>", "what it may do").choices(TokenRole.options))
    .option("--tenant <tenant>", 'its tenant, or "*" for all; default: your own')
    .option("--expires <duration>", "how long it is valid: 10m, 12h, 30d; default: no end", seconds)
    .option("--join", "a join token: enrols one node, valid for 10m by default, 24h at most")
    .option("--signers <patterns>", "signer: signers that it may open, eip155:1:*", list)
    .option("--pools <names>", "node: pools of its jobs", list)
    .option("--addresses <addresses>", "node: addresses of its nodes", list)
    .option("--tenants <tenants>", 'node: tenants that its nodes serve, or "*"', list)
    .option("--labels <labels>", "node: labels as name=value,…; nodes get token/name", pairs)
    .option("--node-unit", "node: its nodes may be node-units although it has pools")
    .option("--no-node-unit", "node: its nodes are workers only")
    .option("--capacity-max <n>", "node: slots of one node at most", count)
    .option("--nodes-max <n>", "node: nodes per instance at most", count)
    .action(async (flags: CreateFlags) => {
      const body = requestOf(flags);
      // Without the tenant as a query: the body names it.
      const admin = connect({ ...flags, tenant: undefined } as unknown as RemoteFlags);
      const created = await admin.call(ROUTES.createToken, { body });
      print(created, flags, drawCreated);
    });
}

function requestOf(flags: CreateFlags): TokenCreate {
  const {
    join = false,
    role = join ? "node" : undefined,
    name = join ? "join" : undefined,
  } = flags;
  if (join && role !== "node") throw new Error("--join makes a token of role node");
  if (role === undefined) throw new Error(`--role is needed: ${TokenRole.options.join(", ")}`);
  if (name === undefined) throw new Error("--name is needed");
  const tenant = flags.tenant ?? process.env.TENURE_TENANT;
  const scopes: TokenScopes = {
    ...(flags.signers && { signers: flags.signers }),
    ...(flags.pools && { pools: flags.pools }),
    ...(flags.addresses && { addresses: flags.addresses }),
    ...(flags.tenants && { tenants: flags.tenants }),
    ...(flags.labels && { labels: flags.labels }),
    ...(flags.nodeUnit !== undefined && { node_unit: flags.nodeUnit }),
    ...(flags.capacityMax !== undefined && { capacity_max: flags.capacityMax }),
    ...(flags.nodesMax !== undefined && { nodes_max: flags.nodesMax }),
    ...(join && flags.name !== undefined && { node_name: flags.name }),
  };
  return {
    ...{ name, role, scopes },
    ...(tenant !== undefined && { tenant }),
    ...(flags.expires !== undefined && { expires_in_seconds: flags.expires }),
    ...(join && { join }),
  };
}

interface ListFlags extends RemoteFlags {
  limit: number;
  cursor?: string;
  name?: string;
  all?: boolean;
}

function ls(): Command {
  return subcommand("ls", "list tokens, newest first; those of the settings are not among them")
    .option("--limit <n>", "maximum number of tokens", wholeNumber, 50)
    .option("--cursor <cursor>", "next_cursor of the previous page")
    .option("--name <name>", "only tokens of this name")
    .option("--tenant <tenant>", "only this tenant; needs a token for all tenants")
    .option("--all", "include tokens that ended within the last week")
    .action(async (flags: ListFlags) => {
      const { limit, cursor, name, all = false } = flags;
      const query = { limit, cursor, name, live: !all };
      const page = await connect(flags).call(ROUTES.listTokens, { query });
      print(page, flags, ({ items, next_cursor }) =>
        [drawTokens(items), ...(next_cursor ? [`next page: --cursor ${next_cursor}`] : [])].join(
          "\n",
        ),
      );
    });
}

function rotate(): Command {
  return subcommand("rotate", "give a token a new secret; prints it once")
    .argument("<token>", "id or name")
    .option("--grace <duration>", "how long the former secret stays valid: 10m", seconds, 0)
    .option("--expires <duration>", "a new end, from now; default: as before", seconds)
    .option("--tenant <tenant>", "only this tenant; needs a token for all tenants")
    .action(async (token: string, flags: RemoteFlags & { grace: number; expires?: number }) => {
      const admin = connect(flags);
      const body = {
        grace_seconds: flags.grace,
        ...(flags.expires !== undefined && { expires_in_seconds: flags.expires }),
      };
      const params = { id: await idOf(admin, token) };
      print(await admin.call(ROUTES.rotateToken, { params, body }), flags, drawCreated);
    });
}

function revoke(): Command {
  return subcommand("revoke", "end tokens now; their open sockets are closed")
    .argument("<token...>", "ids or names")
    .option("--tenant <tenant>", "only this tenant; needs a token for all tenants")
    .action(async (tokens: string[], flags: RemoteFlags) => {
      const admin = connect(flags);
      const revoked: TokenView[] = [];
      for (const token of tokens) {
        const params = { id: await idOf(admin, token) };
        revoked.push(await admin.call(ROUTES.revokeToken, { params }));
      }
      print(revoked, flags, drawTokens);
    });
}

const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** The id of a token by id or name. Names are not unique: two that are live are not guessed between. */
async function idOf(admin: Admin, token: string): Promise<string> {
  if (ID.test(token)) return token;
  const query = { name: token, live: true, limit: 10 };
  const { items } = await admin.call(ROUTES.listTokens, { query }).catch((error: unknown) => {
    if (isTenureError(error, "INVALID_REQUEST"))
      throw new Error(`"${token}" is neither the id nor the name of a token`);
    throw error;
  });
  const [one, another] = items;
  if (!one) throw new Error(`no live token has the name ${token}`);
  if (another)
    throw new Error(
      `several live tokens have the name ${token}; name one by its id: ${items.map(({ id }) => id).join(", ")}`,
    );
  return one.id;
}

const UNITS: Record<string, number> = { s: 1, m: 60, h: 3_600, d: 86_400 };

/** `90s`, `10m`, `12h`, `30d`. */
function seconds(text: string): number {
  const [, digits = "", unit = ""] = /^(\d{1,7})([smhd])$/.exec(text) ?? [];
  if (digits === "") throw new InvalidArgumentError("must be a duration such as 10m, 12h or 30d");
  return Number(digits) * UNITS[unit]!;
}

function list(text: string): string[] {
  return text.split(",").map((entry) => entry.trim());
}

function pairs(text: string): Record<string, string> {
  const entries = list(text).map((entry) => /^([^=]+)=(.+)$/.exec(entry));
  if (entries.includes(null)) throw new InvalidArgumentError("must be name=value,name=value");
  return Object.fromEntries(entries.map((entry) => [entry![1]!, entry![2]!]));
}

function drawCreated(created: TokenCreated): string {
  const { id, name, role, tenant, expires_at, former_until, secret } = created;
  return [
    fields([
      ["id", id],
      ["name", name],
      ["role", created.join ? `${role} (join)` : role],
      ["tenant", tenant],
      ["expires", expires_at ?? "never"],
      ...(former_until ? [["former secret until", former_until] as const] : []),
    ]),
    "",
    secret,
    "",
    "The secret is shown only now; store it where its user reads it.",
  ].join("\n");
}

/** 80 columns: an id has 36. */
const WIDTHS = { name: 14, role: 7, tenant: 8 };

export function drawTokens(tokens: readonly TokenView[], nowMs: number = Date.now()): string {
  if (tokens.length === 0) return "no tokens";
  return table(
    ["ID", "NAME", "ROLE", "TENANT", "ENDS"],
    tokens.map((token) => [
      token.id,
      cut(printable(token.name), WIDTHS.name),
      token.join ? "join" : cut(token.role, WIDTHS.role),
      cut(printable(token.tenant), WIDTHS.tenant),
      endOf(token, nowMs),
    ]),
  );
}

/** `12m` until the end; what ended it. At most 7 columns. */
function endOf({ state, expires_at }: TokenView, nowMs: number): string {
  if (state !== "live") return state;
  if (expires_at === null) return "never";
  const rest = Math.max(0, Math.round((Date.parse(expires_at) - nowMs) / 1_000));
  const [unit, size] = Object.entries(UNITS)
    .reverse()
    .find(([, each]) => rest >= each) ?? ["s", 1];
  return `in ${Math.floor(rest / size)}${unit}`;
}

const subcommand = (name: string, summary: string): Command =>
  withServerFlags(new Command(name).description(summary));

import { randomUUID } from "node:crypto";
import {
  HIDDEN_HOLD_ID,
  isTenureError,
  type NonceAllocated,
  type NonceAllocation,
  type NonceRecord,
  type SignerView,
} from "@tenure/protocol";
import { ROUTES } from "@tenure/sdk";
import { Command, Option } from "commander";
import { confirmed } from "../confirm.ts";
import type { Context } from "../context.ts";
import { wholeNumber } from "../numbers.ts";
import { print, table } from "../output.ts";
import { connect, type RemoteFlags, withServerFlags } from "../remote.ts";

/** `tenure signer ls | show | allocate | resolve | raise | move`. */
export function signerCommand(_: Context): Command {
  return new Command()
    .addCommand(ls())
    .addCommand(show())
    .addCommand(allocate())
    .addCommand(resolve())
    .addCommand(raise())
    .addCommand(move());
}

function ls(): Command {
  return subcommand("ls", "list signers")
    .option("--limit <n>", "maximum number of signers", wholeNumber, 50)
    .option("--cursor <cursor>", "next_cursor of the previous page")
    .option("--tenant <tenant>", "only this tenant")
    .action(async (flags: RemoteFlags & { limit: number; cursor?: string; tenant?: string }) => {
      const query = { limit: flags.limit, cursor: flags.cursor, tenant: flags.tenant };
      const page = await connect(flags).call(ROUTES.listSigners, { query });
      print(page, flags, ({ items, next_cursor }) =>
        [drawSigners(items), ...(next_cursor ? [`next page: --cursor ${next_cursor}`] : [])].join(
          "\n",
        ),
      );
    });
}

function show(): Command {
  return subcommand("show", "show one signer and its open nonces")
    .argument("<signer>")
    .action(async (signer: string, flags: RemoteFlags) => {
      const admin = connect(flags);
      const view = await admin.call(ROUTES.readSigner, { params: { signer } });
      const list = (status: "HELD" | "QUARANTINED" | "RELEASED") =>
        admin.call(ROUTES.listNonces, { params: { signer }, query: { status, limit: 500 } });
      const pages = [await list("QUARANTINED"), await list("RELEASED"), await list("HELD")];
      const open = pages.flatMap(({ items }) => items);
      print({ ...view, open }, flags, () => [drawSigners([view]), "", drawNonces(open)].join("\n"));
    });
}

function allocate(): Command {
  return subcommand("allocate", "allocate the next nonce, or several")
    .argument("<signer>")
    .option("--count <n>", "number of nonces, all or none", wholeNumber)
    .option("--request-id <id>", "idempotency key: the same id gets the same nonces")
    .option("--wait-ms <n>", "how long to wait for the signer's lease", wholeNumber)
    .option("--tenant <tenant>", "tenant of a new signer; needs an admin token for all tenants")
    .action(async (signer: string, flags: AllocateFlags) => {
      const body = { request_id: flags.requestId ?? randomUUID(), count: flags.count };
      const query = { wait_ms: flags.waitMs, tenant: flags.tenant };
      const input = { params: { signer }, query, body };
      const answer = await connect(flags).call(ROUTES.allocateNonces, input);
      print(answer, flags, drawAllocated);
    });
}

interface AllocateFlags extends RemoteFlags {
  count?: number;
  requestId?: string;
  waitMs?: number;
  tenant?: string;
}

function resolve(): Command {
  return subcommand("resolve", "mark a quarantined nonce used or unused")
    .argument("<signer>")
    .argument("<nonce>", "the quarantined nonce", wholeNumber)
    .addOption(
      new Option("--status <status>", "CONSUMED: it was used; RELEASED: it was never broadcast")
        .choices(["CONSUMED", "RELEASED"])
        .makeOptionMandatory(),
    )
    .requiredOption("--reason <text>", "evidence, stored with the nonce")
    .action(async (signer: string, nonce: number, flags: ResolveFlags) => {
      const body = { status: flags.status, reason: flags.reason };
      const input = { params: { signer, nonce }, body };
      const row = await connect(flags).call(ROUTES.resolveNonce, input);
      print(row, flags, (each) => drawNonces([each]));
    });
}

interface ResolveFlags extends RemoteFlags {
  status: "CONSUMED" | "RELEASED";
  reason: string;
}

function raise(): Command {
  return subcommand("raise", "raise the next nonce (it never falls)")
    .argument("<signer>")
    .argument("<next-nonce>", "the next nonce to allocate", wholeNumber)
    .option("--yes", "skip the confirmation for more than ahead_max nonces")
    .option("--tenant <tenant>", "tenant of a new signer; needs an admin token for all tenants")
    .action(async (signer: string, nextNonce: number, flags: RaiseFlags) => {
      const admin = connect(flags);
      const send = (confirm: boolean | undefined) => {
        const body = { next_nonce: nextNonce, confirm };
        const query = { tenant: flags.tenant };
        return admin.call(ROUTES.raiseSigner, { params: { signer }, query, body });
      };
      const view = await send(flags.yes).catch(async (error: unknown) => {
        if (!isTenureError(error, "CONFIRMATION_REQUIRED")) throw error;
        if (await confirmed(error.details.reason)) return send(true);
        throw new Error(`${error.details.reason}; nothing was changed (use --yes to confirm)`);
      });
      print(view, flags, (each) => drawSigners([each]));
    });
}

interface RaiseFlags extends RemoteFlags {
  yes?: boolean;
  tenant?: string;
}

function move(): Command {
  return subcommand("move", "move signers to another tenant")
    .argument("<signer...>")
    .requiredOption("--tenant <tenant>", "tenant to move to")
    .action(async (signers: string[], { tenant, ...flags }: RemoteFlags & { tenant: string }) => {
      const admin = connect(flags);
      const moved: SignerView[] = [];
      const body = { tenant };
      for (const signer of signers)
        moved.push(await admin.call(ROUTES.moveSigner, { params: { signer }, body }));
      print(moved, flags, drawSigners);
    });
}

function drawSigners(signers: SignerView[]): string {
  return table(
    ["SIGNER", "TENANT", "NEXT", "HELD", "RELEASED", "QUARANTINED", "OWNER", "TOKEN"],
    signers.map((view) => [
      view.signer,
      view.tenant ?? "–",
      String(view.next_nonce),
      String(view.held),
      String(view.released),
      String(view.quarantined),
      view.owner_node ?? "–",
      String(view.fencing_token),
    ]),
  );
}

function drawNonces(rows: NonceRecord[]): string {
  if (rows.length === 0) return "no open nonces";
  return table(
    ["NONCE", "STATUS", "HOLD", "LOCKED UNTIL", "REASON"],
    rows.map((row) => [
      String(row.nonce),
      row.status,
      row.hold_id === HIDDEN_HOLD_ID ? "–" : row.hold_id,
      row.locked_until,
      row.reason ?? row.tx_hash ?? "",
    ]),
  );
}

function drawAllocated(answer: NonceAllocated): string {
  const items: NonceAllocation[] = "items" in answer ? answer.items : [answer];
  return table(
    ["NONCE", "STATUS", "HOLD", "LOCKED UNTIL"],
    items.map(({ nonce, status, hold_id, locked_until }) => [
      String(nonce),
      status,
      hold_id,
      locked_until,
    ]),
  );
}

const subcommand = (name: string, summary: string): Command =>
  withServerFlags(new Command(name).description(summary));

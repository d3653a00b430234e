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
import { Command, InvalidArgumentError, Option } from "commander";
import { confirmed } from "../confirm.ts";
import type { Context } from "../context.ts";
import { print, table } from "../output.ts";
import { asksServer, connect, type RemoteFlags } from "../remote.ts";

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
  return asksServer(part("ls", "list the signers"))
    .option("--limit <n>", "how many at most", wholeNumber, 50)
    .option("--cursor <cursor>", "where the page before ended")
    .option("--tenant <tenant>", "only those of this tenant")
    .action(async (flags: RemoteFlags & { limit: number; cursor?: string; tenant?: string }) => {
      const query = { limit: flags.limit, cursor: flags.cursor, tenant: flags.tenant };
      const page = await connect(flags).call(ROUTES.listSigners, { query });
      print(page, flags, ({ items, next_cursor }) =>
        [drawSigners(items), ...(next_cursor ? [`more: --cursor ${next_cursor}`] : [])].join("\n"),
      );
    });
}

function show(): Command {
  return asksServer(part("show", "one signer and its open numbers"))
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
  return asksServer(part("allocate", "hand out the next number, or several"))
    .argument("<signer>")
    .option("--count <n>", "how many, all or none", wholeNumber)
    .option("--request-id <id>", "asked again under the same id, it gets the same answer")
    .option("--wait-ms <n>", "how long to wait for another instance's lease", wholeNumber)
    .option("--tenant <tenant>", "of a signer that this opens; for an admin of all tenants")
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
  return asksServer(part("resolve", "settle a number whose holder fell silent"))
    .argument("<signer>")
    .argument("<nonce>", "the number", wholeNumber)
    .addOption(
      new Option("--status <status>", "CONSUMED: it was used; RELEASED: it never left")
        .choices(["CONSUMED", "RELEASED"])
        .makeOptionMandatory(),
    )
    .requiredOption("--reason <text>", "how you know; kept with the number")
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
  return asksServer(part("raise", "raise the next number; it never goes down"))
    .argument("<signer>")
    .argument("<next-nonce>", "the next number to hand out", wholeNumber)
    .option("--yes", "also when it skips more than ahead_max numbers")
    .option("--tenant <tenant>", "of a signer that this opens; for an admin of all tenants")
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
        throw new Error(`${error.details.reason}; nothing was changed (--yes does it)`);
      });
      print(view, flags, (each) => drawSigners([each]));
    });
}

interface RaiseFlags extends RemoteFlags {
  yes?: boolean;
  tenant?: string;
}

function move(): Command {
  return asksServer(part("move", "give signers with all their numbers to another tenant"))
    .argument("<signer...>")
    .requiredOption("--tenant <tenant>", "whose they are from now on")
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
  if (rows.length === 0) return "no open numbers";
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

/** A part says itself what is wrong with its command line, as the command it belongs to would. */
function part(name: string, summary: string): Command {
  return new Command(name)
    .description(summary)
    .exitOverride()
    .showHelpAfterError("(--help shows what there is)");
}

function wholeNumber(text: string): number {
  if (/^\d{1,16}$/.test(text) && Number.isSafeInteger(Number(text))) return Number(text);
  throw new InvalidArgumentError("must be a whole number");
}

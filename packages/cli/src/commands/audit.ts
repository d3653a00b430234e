import type { AuditRecord } from "@tenure/protocol";
import { ROUTES } from "@tenure/sdk";
import { Command } from "commander";
import pc from "picocolors";
import type { Context } from "../context.ts";
import { print } from "../output.ts";
import { printable } from "../printable.ts";
import { connect, type RemoteFlags, withServerFlags } from "../remote.ts";

interface Flags extends RemoteFlags {
  lines: string;
  action?: string;
  actor?: string;
  subject?: string;
  tenant?: string;
}

export function auditCommand(_: Context): Command {
  return withServerFlags(new Command())
    .option("-n, --lines <number>", "number of newest entries", "20")
    .option("--action <name>", "only this action, e.g. deployment.update")
    .option("--actor <name>", "only this token, by name")
    .option("--subject <id>", "only this deployment, node, signer …")
    .option("--tenant <tenant>", "only this tenant; needs a token for all tenants")
    .action(async (flags: Flags) => {
      const { lines, action, actor, subject, tenant } = flags;
      const query = { limit: Number(lines), action, actor, subject, tenant };
      const { items } = await connect(flags).call(ROUTES.listAudit, { query });
      const oldestFirst = items.reverse();
      print({ items: oldestFirst }, flags, () => drawAudit(oldestFirst));
    });
}

/** Column widths. With the time and the gaps they add up to 80 columns. */
const WIDTHS = { name: 15, address: 15, action: 19, subject: 15 };

/** One line of 80 columns per entry, grouped by day. `--json` has the full values. */
export function drawAudit(entries: readonly AuditRecord[]): string {
  if (entries.length === 0) return "no entries";
  let day = "";
  return entries
    .flatMap((entry) => {
      const heading = entry.at.slice(0, 10);
      const isSameDay = heading === day;
      day = heading;
      return [...(isSameDay ? [] : [pc.bold(`${heading} (UTC)`)]), ...drawEntry(entry)];
    })
    .join("\n");
}

function drawEntry({ at, actor, action, outcome, subject = "" }: AuditRecord): string[] {
  const cells = [
    pc.dim(at.slice(11, 19)),
    fit(actor.name, WIDTHS.name),
    pc.dim(fit(actor.address, WIDTHS.address)),
    pc.bold(fit(action, WIDTHS.action)),
    fit(subject, WIDTHS.subject).trimEnd(),
  ];
  const line = cells.join("  ").trimEnd();
  const after = `          ${pc.red(printable(outcome))}: outcome unknown, the change may have been made`;
  return outcome === "done" ? [line] : [line, after];
}

/** Pads or shortens a text to the width, by removing its middle. */
function fit(text: string, width: number): string {
  const shown = printable(text);
  if (shown.length <= width) return shown.padEnd(width);
  return `${shown.slice(0, width - 5)}…${shown.slice(-4)}`;
}

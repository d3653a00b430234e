import { type DlqEntry, TenureError } from "@tenure/protocol";
import { type Admin, allPages, ROUTES } from "@tenure/sdk";
import { Command } from "commander";
import type { Context } from "../context.ts";
import { ago, fields, print, table } from "../output.ts";
import { connect, type RemoteFlags, withServerFlags } from "../remote.ts";

export function dlqCommand(_: Context): Command {
  const dlq = new Command();
  withServerFlags(dlq.command("ls").description("list dead letters by instance, oldest first"))
    .option("--instance <id>", "only this instance")
    .action(async (flags: RemoteFlags & { instance?: string }) => {
      const items = await listAll(connect(flags), flags.instance);
      print({ items }, flags, () => drawList(items));
    });
  withServerFlags(
    dlq.command("show <id>").description("show one dead letter and its content"),
  ).action(async (id: string, flags: RemoteFlags) =>
    print(await find(connect(flags), id), flags, drawOne),
  );
  withServerFlags(
    dlq
      .command("redrive <ids...>")
      .description("send dead letters again, each with a new deadline"),
  ).action(async (ids: string[], flags: RemoteFlags) => {
    const admin = connect(flags);
    await forEach(ids, flags, {
      act: (id) => admin.call(ROUTES.redriveDlq, { params: { id } }),
      draw: ({ id, instance_id }) => `${id} sent to ${instance_id}`,
    });
  });
  withServerFlags(
    dlq.command("rm <ids...>").description("discard dead letters permanently"),
  ).action(async (ids: string[], flags: RemoteFlags) => {
    const admin = connect(flags);
    await forEach(ids, flags, {
      async act(id) {
        await admin.call(ROUTES.discardDlq, { params: { id } });
        return { id };
      },
      draw: ({ id }) => `${id} discarded`,
    });
  });
  return dlq;
}

/** Processes ids in order and stops at the first failure. Completed ones are printed in either case. */
async function forEach<T>(
  ids: string[],
  flags: RemoteFlags,
  { act, draw }: { act: (id: string) => Promise<T>; draw: (done: T) => string },
): Promise<void> {
  const items: T[] = [];
  try {
    for (const id of ids) items.push(await act(id));
  } finally {
    if (items.length > 0) print({ items }, flags, () => items.map(draw).join("\n"));
  }
}

const listAll = (admin: Admin, instance_id?: string): Promise<DlqEntry[]> =>
  allPages((page) => admin.call(ROUTES.listDlq, { query: { instance_id, ...page } }));

async function find(admin: Admin, id: string): Promise<DlqEntry> {
  const letters = await listAll(admin, id.slice(0, Math.max(1, id.lastIndexOf(":"))));
  const letter = letters.find((candidate) => candidate.id === id);
  if (!letter) throw new TenureError("NOT_FOUND", { what: "dead letter", id });
  return letter;
}

function drawList(letters: DlqEntry[]): string {
  if (letters.length === 0) return "no dead letters";
  const rows = letters.map(({ id, reason, kind, job_id, deliveries, moved_at }) => [
    id,
    reason,
    kind ?? "-",
    job_id ?? "-",
    String(deliveries),
    ago(moved_at),
  ]);
  return table(["ID", "REASON", "KIND", "JOB", "DELIVERIES", "SINCE"], rows);
}

function drawOne({ bytes, ...letter }: DlqEntry): string {
  const known = Object.entries(letter).map(([name, value]) => [name, String(value)] as const);
  return fields([...known, ["bytes", Buffer.from(bytes, "base64").toString()]]);
}

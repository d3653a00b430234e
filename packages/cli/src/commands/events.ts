import { EventRecord } from "@tenure/protocol";
import { followStream, ROUTES } from "@tenure/sdk";
import { Command } from "commander";
import pc from "picocolors";
import type { Context } from "../context.ts";
import { print, shortId } from "../output.ts";
import { printable } from "../printable.ts";
import { connect, type RemoteFlags, tlsOf, tokenOf, withServerFlags } from "../remote.ts";

interface Flags extends RemoteFlags {
  follow?: boolean;
  lines: string;
  event?: string;
  subject?: string;
}

export function eventsCommand(_: Context): Command {
  return withServerFlags(new Command())
    .option("-f, --follow", "keep printing new events")
    .option("-n, --lines <number>", "number of newest events", "20")
    .option("--event <name>", "only this event, e.g. node.left")
    .option("--subject <id>", "only this node, deployment, signer …")
    .action(async (flags: Flags) => {
      const query = { limit: Number(flags.lines), event: flags.event, subject: flags.subject };
      const { items } = await connect(flags).call(ROUTES.listEvents, { query });
      const oldestFirst = items.reverse();
      print({ items: oldestFirst }, flags, () => oldestFirst.map(draw).join("\n"));
      if (flags.follow) await follow(flags);
    });
}

async function follow(flags: Flags): Promise<void> {
  const stopping = new AbortController();
  process.once("SIGINT", () => stopping.abort());
  try {
    const { signal } = stopping;
    const options = { url: flags.url, token: tokenOf(flags), tls: tlsOf(flags), signal };
    for await (const { topic, item } of followStream(options)) {
      const parsed = EventRecord.safeParse(item);
      if (topic !== "events" || !parsed.success || !matches(parsed.data, flags)) continue;
      process.stdout.write(`${flags.json ? JSON.stringify(parsed.data) : draw(parsed.data)}\n`);
    }
  } catch (error) {
    if (!stopping.signal.aborted) throw error;
  }
}

const matches = ({ event, subject }: EventRecord, flags: Flags): boolean =>
  (flags.event === undefined || flags.event === event) &&
  (flags.subject === undefined || flags.subject === subject);

function draw({ at, event, code, message, subject }: EventRecord): string {
  const what = pc.bold(printable(event)) + (code ? ` ${pc.red(printable(code))}` : "");
  return `${pc.dim(at)} ${what} ${printable(message)}${subject ? pc.dim(` ${printable(shortId(subject))}`) : ""}`;
}

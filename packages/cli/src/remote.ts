import { type Admin, createAdmin } from "@tenure/sdk";
import type { Command } from "commander";

export interface RemoteFlags {
  url: string;
  token?: string;
  json?: boolean;
}

const URL_DEFAULT = "http://127.0.0.1:7070";

/** The flags of every command that asks a running server. */
export function asksServer(command: Command): Command {
  return command
    .option("--url <url>", "the server to ask (TENURE_URL)", process.env.TENURE_URL ?? URL_DEFAULT)
    .option(
      "--token <token>",
      "bearer token (better given as TENURE_TOKEN: a flag is seen in the process list)",
    )
    .option("--json", "print JSON instead of a table");
}

export function connect(flags: RemoteFlags): Admin {
  if (!/^https?:\/\/./.test(flags.url) || !URL.canParse(flags.url))
    throw new Error(`"${flags.url}" is not the URL of a server; it looks like ${URL_DEFAULT}`);
  return createAdmin({ url: flags.url, token: tokenOf(flags) });
}

export function tokenOf({ token }: RemoteFlags): string | undefined {
  return token ?? process.env.TENURE_TOKEN;
}

import { type Admin, createAdmin, urlsOf } from "@tenure/sdk";
import { findDevToken } from "@tenure/sdk/dev-token";
import type { Command } from "commander";

export interface RemoteFlags {
  url: string;
  token?: string;
  json?: boolean;
  tenant?: string;
}

const URL_DEFAULT = "http://127.0.0.1:7070";

/** The flags of every command that asks a running server. */
export function asksServer(command: Command): Command {
  return command
    .option(
      "--url <url>",
      "the server to ask, or several with commas between (TENURE_URL)",
      process.env.TENURE_URL ?? URL_DEFAULT,
    )
    .option(
      "--token <token>",
      "bearer token (better given as TENURE_TOKEN: a flag is seen in the process list)",
    )
    .option("--json", "print JSON instead of a table");
}

export function connect(flags: RemoteFlags): Admin {
  const urls = urlsOf(flags.url);
  const bad = urls.find((url) => !/^https?:\/\/./.test(url) || !URL.canParse(url));
  if (bad !== undefined || urls.length === 0)
    throw new Error(
      `"${bad ?? flags.url}" is not the URL of a server; it looks like ${URL_DEFAULT}`,
    );
  return createAdmin({ url: urls, token: tokenOf(flags), tenant: tenantOf(flags) });
}

/** Which tenant a command is about, with a token of all of them. */
export function tenantOf({ tenant }: RemoteFlags): string | undefined {
  return tenant ?? process.env.TENURE_TENANT;
}

/** Of a `tenure dev` on this machine the token is found without being given. */
export function tokenOf({ token, url }: RemoteFlags): string | undefined {
  return token ?? process.env.TENURE_TOKEN ?? findDevToken(url);
}

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

/** Adds the flags of every command that calls a running server. */
export function withServerFlags(command: Command): Command {
  return command
    .option(
      "--url <url>",
      "server URL, or several separated by commas (TENURE_URL)",
      process.env.TENURE_URL ?? URL_DEFAULT,
    )
    .option("--token <token>", "bearer token; prefer TENURE_TOKEN, flags show in the process list")
    .option("--json", "print JSON instead of a table");
}

export function connect(flags: RemoteFlags): Admin {
  const urls = urlsOf(flags.url);
  const bad = urls.find((url) => !/^https?:\/\/./.test(url) || !URL.canParse(url));
  if (bad !== undefined || urls.length === 0)
    throw new Error(
      `"${bad ?? flags.url}" is not the URL of a server; expected a URL such as ${URL_DEFAULT}`,
    );
  return createAdmin({ url: urls, token: tokenOf(flags), tenant: tenantOf(flags) });
}

/** The tenant to act for, when the token is valid for all tenants. */
export function tenantOf({ tenant }: RemoteFlags): string | undefined {
  return tenant ?? process.env.TENURE_TENANT;
}

/** Returns the given token, or that of a `tenure dev` on this machine. */
export function tokenOf({ token, url }: RemoteFlags): string | undefined {
  return token ?? process.env.TENURE_TOKEN ?? findDevToken(url);
}

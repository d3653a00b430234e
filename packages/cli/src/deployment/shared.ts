import type { DeploymentView } from "@tenure/protocol";
import { type Admin, allPages, ROUTES } from "@tenure/sdk";
import { Command } from "commander";
import { withServerFlags } from "../remote.ts";

/** A subcommand of `tenure deployment` with the flags they share. */
export const subcommand = (name: string, summary: string): Command =>
  withServerFlags(new Command(name).description(summary)).option(
    "--tenant <tenant>",
    "tenant to act for; needs a token for all tenants (TENURE_TENANT)",
  );

export const listAll = (
  admin: Admin,
  query: { type?: "daemon" | undefined; address?: string | undefined } = {},
): Promise<DeploymentView[]> =>
  allPages((page) => admin.call(ROUTES.listDeployments, { query: { ...query, ...page } }));

import type { DeploymentCreate, DeploymentView, EnvValue } from "@tenure/protocol";
import { ROUTES, TenureError } from "@tenure/sdk";
import type { Command } from "commander";
import { count } from "../numbers.ts";
import { print } from "../output.ts";
import { connect, type RemoteFlags } from "../remote.ts";
import { drawList } from "./draw.ts";
import { subcommand } from "./shared.ts";

interface CreateFlags extends RemoteFlags {
  name?: string;
  package?: string;
  command?: string;
  arg?: string[];
  env?: string[];
  envSecret?: string[];
  selector?: string[];
  type?: string;
  pin?: string;
  lostAfterMs?: number;
  disabled?: boolean;
  count: number;
}

/** `tenure deployment create`. */
export function create(): Command {
  const collect = (value: string, all: string[] = []): string[] => [...all, value];
  return subcommand("create", "create one deployment, or several alike")
    .option("--name <name>", "with --count: <name>-1, <name>-2, …")
    .option("--package <name@version>", "npm package with an exact version")
    .option("--command <command>", "shell command; runs only on nodes that allow custom commands")
    .option("--arg <arg>", "argument of the process; repeatable", collect)
    .option("--env <NAME=value>", "environment variable; repeatable", collect)
    .option(
      "--env-secret <NAME=secret>",
      "variable with the value of a secret; repeatable",
      collect,
    )
    .option(
      "--selector <label=value>",
      "run only on nodes with this label; repeatable",
      collect,
      [],
    )
    .option("--type <type>", "daemon or deployment")
    .option("--pin <address>", "run only on this node")
    .option("--lost-after-ms <ms>", "how long a lost node keeps ownership", Number)
    .option("--disabled", "create it but do not run it")
    .option("--count <n>", "number of deployments to create", count, 1)
    .action(async (flags: CreateFlags) => {
      const admin = connect(flags);
      const created: DeploymentView[] = [];
      for (let n = 1; n <= flags.count; n++) {
        const suffix = flags.count > 1 && flags.name !== undefined ? `-${n}` : "";
        const body = { ...specOf(flags), ...(flags.name && { name: flags.name + suffix }) };
        created.push(await admin.call(ROUTES.createDeployment, { body }));
      }
      print(created, flags, (views) => drawList(views));
    });
}

function specOf(flags: CreateFlags): DeploymentCreate {
  // The last @ starts the version; the first may start a scope.
  const at = flags.package?.lastIndexOf("@") ?? -1;
  return {
    ...(flags.package !== undefined && {
      package_name: at > 0 ? flags.package.slice(0, at) : flags.package,
      package_version: at > 0 ? flags.package.slice(at + 1) : "",
    }),
    ...(flags.command !== undefined && { command: flags.command }),
    args: flags.arg ?? [],
    env: { ...pairs(flags.env), ...secrets(flags.envSecret) },
    selector: pairs(flags.selector),
    ...(flags.type !== undefined && { type: flags.type }),
    ...(flags.pin !== undefined && { pin: flags.pin }),
    ...(flags.lostAfterMs !== undefined && { lost_after_ms: flags.lostAfterMs }),
    ...(flags.disabled && { enabled: false }),
  };
}

const secrets = (texts?: readonly string[]): Record<string, EnvValue> =>
  Object.fromEntries(Object.entries(pairs(texts)).map(([name, secret]) => [name, { secret }]));

function pairs(texts: readonly string[] = []): Record<string, string> {
  return Object.fromEntries(
    texts.map((text) => {
      const at = text.indexOf("=");
      if (at < 1)
        throw new TenureError("INVALID_REQUEST", { reason: `expected name=value, got ${text}` });
      return [text.slice(0, at), text.slice(at + 1)];
    }),
  );
}

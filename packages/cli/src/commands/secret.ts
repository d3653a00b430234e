import { readFile } from "node:fs/promises";
import { SECRET_BYTES_MAX, type SecretRotation, type SecretView } from "@tenure/protocol";
import { type Admin, allPages, ROUTES } from "@tenure/sdk";
import { Command } from "commander";
import type { Context } from "../context.ts";
import { print, table } from "../output.ts";
import { connect, type RemoteFlags, withServerFlags } from "../remote.ts";

/** `tenure secret set | ls | rm | rotate`. */
export function secretCommand(context: Context): Command {
  return new Command()
    .addCommand(set())
    .addCommand(ls())
    .addCommand(rm())
    .addCommand(rotate(context));
}

interface SetFlags extends RemoteFlags {
  fromFile?: string;
}

// No flag takes the value: everyone on this machine sees the arguments of a process.
function set(): Command {
  return subcommand("set", "set the value of a secret, read from standard input or a file")
    .argument("<name>")
    .option("--from-file <path>", "read the value from this file, as it is")
    .action(async (name: string, flags: SetFlags) => {
      const value =
        flags.fromFile === undefined ? await fromStdin() : await fromFile(flags.fromFile);
      const input = { params: { name }, body: { value, tenant: flags.tenant } };
      print(await connect(flags).call(ROUTES.setSecret, input), flags, (view) => draw([view]));
    });
}

function ls(): Command {
  return subcommand("ls", "list secrets without their values").action(
    async (flags: RemoteFlags) => {
      const admin = connect(flags);
      const items = await allPages((page) => admin.call(ROUTES.listSecrets, { query: page }));
      print({ items }, flags, () => (items.length === 0 ? "no secrets" : draw(items)));
    },
  );
}

function rm(): Command {
  return subcommand("rm", "remove a secret that no deployment refers to")
    .argument("<name>")
    .option("--force", "remove it also if deployments refer to it; their next start waits")
    .action(async (name: string, flags: RemoteFlags & { force?: boolean }) => {
      const query = { force: flags.force };
      await connect(flags).call(ROUTES.removeSecret, { params: { name }, query });
      print({ name }, flags, () => `removed secret ${name}`);
    });
}

function rotate(context: Context): Command {
  return subcommand(
    "rotate",
    "encrypt every secret again with the first key of secret_key_file",
  ).action(async (flags: RemoteFlags) => {
    const done = await rotateAll(connect(flags));
    if (done.failed.length > 0) context.exitCode = 1;
    print(done, flags, drawRotation);
  });
}

type Rotated = Omit<SecretRotation, "next_cursor">;

async function rotateAll(admin: Admin): Promise<Rotated> {
  const all: Rotated = { key_id: "", rotated: 0, current: 0, failed: [] };
  let cursor: string | undefined;
  do {
    const page = await admin.call(ROUTES.rotateSecrets, { query: { limit: 100, cursor } });
    all.key_id = page.key_id;
    all.rotated += page.rotated;
    all.current += page.current;
    all.failed.push(...page.failed);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
  return all;
}

/** Without a final line break, which `echo` and an editor add. */
async function fromStdin(): Promise<string> {
  if (process.stdin.isTTY)
    throw new Error(
      'the value is read from standard input: pipe it in (printf %s "$VALUE" | tenure secret set NAME), or use --from-file',
    );
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of process.stdin) {
    chunks.push(chunk as Buffer);
    bytes += (chunk as Buffer).length;
    if (bytes > SECRET_BYTES_MAX + 2) throw tooLong();
  }
  return textOf(Buffer.concat(chunks)).replace(/\r?\n$/, "");
}

async function fromFile(path: string): Promise<string> {
  const bytes = await readFile(path);
  if (bytes.length > SECRET_BYTES_MAX) throw tooLong();
  return textOf(bytes);
}

const tooLong = (): Error => new Error(`the value must be at most ${SECRET_BYTES_MAX} bytes`);

function textOf(bytes: Buffer): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Error("the value must be UTF-8 text; encode other bytes, for example with base64");
  }
}

function draw(secrets: SecretView[]): string {
  return table(
    ["NAME", "TENANT", "VERSION", "SET", "KEY", "USED BY"],
    secrets.map(({ name, tenant, version, updated_at, key_id, used_by }) => [
      name,
      tenant,
      String(version),
      updated_at,
      key_id,
      used_by.map((deployment) => deployment.name).join(", ") || "–",
    ]),
  );
}

function drawRotation({ key_id, rotated, current, failed }: Rotated): string {
  return [
    `${rotated} encrypted again with key ${key_id}, ${current} had it already`,
    ...failed.map(
      ({ tenant, name, reason }) => `${name} (tenant ${tenant}) not rotated: ${reason}`,
    ),
  ].join("\n");
}

const subcommand = (name: string, summary: string): Command =>
  withServerFlags(new Command(name).description(summary)).option(
    "--tenant <tenant>",
    "tenant to act for; needs a token for all tenants (TENURE_TENANT)",
  );

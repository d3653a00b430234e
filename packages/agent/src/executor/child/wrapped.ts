import type { Directories } from "../data-directory/directories.ts";
import type { Program } from "./launch.ts";

/**
 * Gives the program its variables back, inside of what the wrapper built, and becomes it. The protocol allows only names
 * of variables that a shell takes, so `export` sees nothing but NAME=value.
 */
const UNPACK = `
TENURE_N=0
while eval "[ -n \\"\\\${TENURE_ENV_$TENURE_N+set}\\" ]"; do
  eval "export \\"\\$TENURE_ENV_$TENURE_N\\"; unset TENURE_ENV_$TENURE_N"
  TENURE_N=$((TENURE_N + 1))
done
unset TENURE_N
exec "$@"
`;

/**
 * The program as the wrapper starts it. The deployment's own variables travel under other names: `LD_PRELOAD` or
 * `PATH` would otherwise act on the wrapper, before it has closed anything.
 */
export function wrapped(
  program: Program,
  env: Readonly<Record<string, string>>,
  { wrapper, directories }: { wrapper?: readonly string[] | undefined; directories: Directories },
): Program {
  const [file, ...args] = wrapper ?? [];
  if (file === undefined) return program;
  const places: Record<string, string> = {
    "{data_dir}": directories.root,
    "{packages_dir}": directories.packages,
    "{work_dir}": program.directory,
  };
  const filled = args.map((word) =>
    word.replace(/\{[a-z_]+\}/g, (place) => places[place] ?? place),
  );
  const own = Object.entries(program.env).filter(
    ([name]) => env[name] === undefined || name.startsWith("TENURE_"),
  );
  const packed = Object.entries(program.env)
    .filter(([name]) => env[name] !== undefined && !name.startsWith("TENURE_"))
    .map(([name, value], index) => [`TENURE_ENV_${index}`, `${name}=${value}`] as const);
  return {
    ...program,
    file,
    args: [...filled, "/bin/sh", "-c", UNPACK, "sh", program.file, ...program.args],
    env: { PATH: WRAPPER_PATH, ...Object.fromEntries(own), ...Object.fromEntries(packed) },
  };
}

const WRAPPER_PATH = "/usr/local/bin:/usr/bin:/bin";

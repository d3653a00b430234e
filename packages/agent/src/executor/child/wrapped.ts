import type { Directories } from "../data-directory/directories.ts";
import type { Program } from "./launch.ts";

/**
 * Restores the variables of the program inside the wrapper, and executes it. The protocol allows only names of variables
 * that a shell accepts, so `export` sees only NAME=value.
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
 * Returns the program with its wrapper. The deployment's own variables are passed under other names: `LD_PRELOAD` or `PATH`
 * would otherwise apply to the wrapper, before it has confined anything.
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

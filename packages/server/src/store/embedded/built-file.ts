/**
 * The file of this folder that a thread or a process is started with. Tests run from source, where Node cannot start a `.ts`
 * file: they use the build of the same file.
 */
export function builtFile(name: string): URL {
  return import.meta.url.endsWith(".ts")
    ? new URL(`../../../dist/store/embedded/${name}`, import.meta.url)
    : new URL(name, import.meta.url);
}

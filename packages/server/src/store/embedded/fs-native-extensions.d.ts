// The package ships no types; this is the part we use.
declare module "fs-native-extensions" {
  const fsx: { tryLock(fd: number): boolean };
  // biome-ignore lint/style/noDefaultExport: it is how the package exports
  export default fsx;
}

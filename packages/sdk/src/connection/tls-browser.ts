import type { Fetch, TlsFiles } from "./tls.ts";

export function checkTls(_files: TlsFiles): void {
  throw new TypeError("tls: not available in a browser, which has its own certificates");
}

export function openFetch(files: TlsFiles | undefined): Fetch {
  if (files) checkTls(files);
  return (url, init) => fetch(url, init);
}

// Makes the files of a release, after `npm run build`: the packages as `npm pack` makes them, a CycloneDX list of all that
// they install and bundle (sbom.cdx.json), and SHA256SUMS. `node scripts/release.js DIRECTORY`; without it, `release/`.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";

const root = resolve(import.meta.dirname, "..");
const target = resolve(process.argv[2] ?? join(root, "release"));
const PACKAGES = ["agent", "cli", "console", "protocol", "sdk", "server"].map(
  (name) => `packages/${name}`,
);
/** Vite puts the dependencies of this package into its files: they are shipped although they are not installed. */
const BUNDLED = "packages/console";

/** @typedef {Record<string, string>} Ranges */
/** @typedef {{ name?: string, version?: string, link?: boolean, resolved?: string, dependencies?: Ranges, devDependencies?: Ranges, optionalDependencies?: Ranges }} Locked */
/** @type {{ packages: Record<string, Locked> }} */
const lock = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8"));

/** The place in the lock file of what `from` gets for this name, as Node looks it up. */
function placeOf(/** @type {string} */ name, /** @type {string} */ from) {
  for (
    let at = from;
    ;
    at = at.replace(/(^|\/)node_modules\/(@[^/]+\/)?[^/]+$|[^/]*$/, "").replace(/\/$/, "")
  ) {
    const place = at === "" ? `node_modules/${name}` : `${at}/node_modules/${name}`;
    const found = lock.packages[place];
    if (found) return found.link ? String(found.resolved) : place;
    if (at === "") return undefined;
  }
}

/** What an installation of the packages has, and what is bundled into them, as `name@version`. */
function shipped() {
  /** @type {Set<string>} */
  const places = new Set();
  const visit = (/** @type {string} */ place) => {
    if (places.has(place)) return;
    places.add(place);
    const { dependencies, devDependencies, optionalDependencies } = lock.packages[place] ?? {};
    const names = {
      ...dependencies,
      ...optionalDependencies,
      ...(place === BUNDLED && devDependencies),
    };
    for (const name of Object.keys(names)) {
      const next = placeOf(name, place);
      if (next) visit(next);
      else if (!optionalDependencies?.[name])
        throw new Error(`${name} of ${place} is not in package-lock.json`);
    }
  };
  for (const place of PACKAGES) visit(place);
  return new Set(
    [...places].map((place) => {
      const { name = place.split("node_modules/").at(-1), version } = lock.packages[place] ?? {};
      return `${name}@${version}`;
    }),
  );
}

const npm = (/** @type {string[]} */ ...args) =>
  execFileSync("npm", [...args, "--loglevel=error"], {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
  });

/**
 * `npm sbom --omit dev` leaves out packages that some workspace also has for development (pg, ws, zod, …), and has those of
 * all workspaces. So the whole list is made, and cut to what is shipped.
 */
function billOfMaterials() {
  const bom = JSON.parse(npm("sbom", "--sbom-format", "cyclonedx", "--sbom-type", "application"));
  const wanted = shipped();
  const isWanted = (/** @type {{ "bom-ref": string }} */ { "bom-ref": ref }) => wanted.has(ref);
  bom.components = bom.components.filter(isWanted);
  const listed = new Set(
    bom.components.map((/** @type {{ "bom-ref": string }} */ one) => one["bom-ref"]),
  );
  const missing = [...wanted].filter((ref) => !listed.has(ref));
  if (missing.length > 0) throw new Error(`npm sbom does not list ${missing.join(", ")}`);
  const { component } = bom.metadata;
  component.name = "tenure"; // And not the directory of the checkout.
  bom.dependencies = bom.dependencies
    .filter(
      (/** @type {{ ref: string }} */ { ref }) => listed.has(ref) || ref === component["bom-ref"],
    )
    .map((/** @type {{ ref: string, dependsOn?: string[] }} */ { ref, dependsOn = [] }) => ({
      ref,
      dependsOn: dependsOn.filter((on) => listed.has(on)),
    }));
  return bom;
}

mkdirSync(target, { recursive: true });
// Of an earlier run. The directory may have other files, which stay and have no sum.
const madeHere = () =>
  readdirSync(target).filter((name) => /^(tenure-.*\.tgz|sbom\.cdx\.json|SHA256SUMS)$/.test(name));
for (const name of madeHere()) rmSync(join(target, name));
npm(
  "pack",
  "--ignore-scripts",
  "--pack-destination",
  target,
  ...PACKAGES.flatMap((name) => ["--workspace", name]),
);
const bom = billOfMaterials();
writeFileSync(join(target, "sbom.cdx.json"), `${JSON.stringify(bom, null, 2)}\n`);
const sums = madeHere()
  .sort()
  .map(
    (name) =>
      `${createHash("sha256")
        .update(readFileSync(join(target, name)))
        .digest("hex")}  ${name}\n`,
  );
writeFileSync(join(target, "SHA256SUMS"), sums.join(""));
process.stdout.write(
  `${target}: ${sums.length} files, ${bom.components.length} components in sbom.cdx.json\n`,
);

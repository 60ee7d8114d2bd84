// The host's folders from the edge inwards. A folder may import those after it, never those before.
const layers = [
  'app',
  'http|sockets',
  'operators',
  'plugins',
  'own-data',
  'turns',
  'agent',
  'files',
  'models',
  'auth',
  'store',
  'bus',
  'observability',
  'config',
];

const lookInwards = layers.slice(1).map((folders, i) => ({
  name: `${folders}-looks-inwards`,
  severity: 'error',
  from: { path: `^packages/host/src/(${folders})/` },
  to: { path: `^packages/host/src/(${layers.slice(0, i + 1).join('|')})/` },
}));

/** What each package may import of the others; the host may import all. */
const packages = {
  protocol: [],
  'server-kit': ['protocol'],
  'safe-fetch': ['protocol', 'server-kit'],
  ucan: ['protocol'],
  'plugin-kit': ['protocol', 'safe-fetch', 'server-kit', 'ucan'],
  client: ['protocol', 'ucan'],
  'grpc-client': ['protocol', 'server-kit'],
  gateway: ['grpc-client', 'protocol', 'server-kit', 'ucan'],
  'demo-chain': ['grpc-client'],
  web: ['client', 'protocol'],
};

const packageBorders = Object.entries(packages).map(([name, allowed]) => ({
  name: `${name}-stands-alone`,
  severity: 'error',
  from: { path: `^packages/${name}/src/` },
  to: { path: `^(plugins|packages/(?!(${[name, ...allowed].join('|')})/))` },
}));

module.exports = {
  forbidden: [
    { name: 'no-cycles', severity: 'error', from: {}, to: { circular: true } },
    {
      name: 'plugins-use-the-kit-only',
      severity: 'error',
      from: { path: '^plugins/([^/]+)/' },
      to: { path: '^(packages/(?!(plugin-kit|protocol)/)|plugins/(?!$1/))' },
    },
    {
      name: 'only-the-bundle-names-plugins',
      severity: 'error',
      from: { path: '^packages/', pathNot: '^packages/host/src/app/bundled-plugins' },
      to: { path: '^plugins/' },
    },
    {
      name: 'browser-code-stays-in-the-browser',
      severity: 'error',
      from: { path: '^packages/(protocol/src|ucan/src/browser)/' },
      to: { dependencyTypes: ['core'] },
    },
    ...packageBorders,
    ...lookInwards,
  ],
  options: {
    tsPreCompilationDeps: true,
    doNotFollow: { path: 'node_modules' },
    exclude: { path: '/dist/|\\.test\\.ts$' },
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['sibyl-source', 'import', 'default'],
    },
  },
};

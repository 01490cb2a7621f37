import js from '@eslint/js';
import { defineConfig, globalIgnores } from 'eslint/config';
import tseslint from 'typescript-eslint';

export default defineConfig(
  globalIgnores(['dist/', 'artifacts/', 'coverage/']),
  { linterOptions: { reportUnusedDisableDirectives: 'error' } },
  js.configs.recommended,
  tseslint.configs.strictTypeChecked,
  tseslint.configs.stylisticTypeChecked,
  {
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      '@typescript-eslint/consistent-type-exports': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        // A default branch is how a switch over open words (API strings) is closed.
        { considerDefaultExhaustiveForUnions: true },
      ],
      eqeqeq: 'error',
      'no-restricted-syntax': [
        'error',
        { selector: 'ExportDefaultDeclaration', message: 'Export by name.' },
      ],
      // Numbers print in one way; everything else must still be made a string on purpose.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      // `() => log(x)` as a callback of type void reads better than a block around it.
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      // `while (true)` is how a loop that only returns or breaks is written.
      '@typescript-eslint/no-unnecessary-condition': [
        'error',
        { allowConstantLoopConditions: 'only-allowed-literals' },
      ],
      // A leading underscore says that a parameter is there for its position only.
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_' }],
    },
  },
  {
    files: ['src/**/*.ts'],
    rules: {
      'max-lines-per-function': ['error', { max: 70 }],
      'no-restricted-syntax': [
        'error',
        { selector: 'ExportDefaultDeclaration', message: 'Export by name.' },
        {
          selector: 'ObjectExpression > SpreadElement > ObjectExpression',
          message: 'Write each property on a line of its own.',
        },
      ],
    },
  },
  {
    files: ['dashboards/*.ts'],
    rules: {
      // The classic model of a board is what Grafana 10 to 13 read.
      '@typescript-eslint/no-deprecated': [
        'error',
        {
          allow: [
            {
              from: 'package',
              package: '@grafana/grafana-foundation-sdk',
              name: ['Dashboard', 'DashboardBuilder'],
            },
          ],
        },
      ],
    },
  },
  {
    // Tools load their configuration from the default export.
    files: ['*.config.{js,ts}'],
    rules: { 'no-restricted-syntax': 'off' },
  },
  {
    // Plain JavaScript is in no TypeScript project, so rules that need types cannot run on it.
    files: ['**/*.js'],
    extends: [tseslint.configs.disableTypeChecked],
    languageOptions: { parserOptions: { projectService: false } },
  },
);

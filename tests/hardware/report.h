// The report of the acceptance run: made of lines of facts, written as JSON and as a page, read
// again and checked.
#pragma once

#include <iosfwd>
#include <string>

#include "tests/hardware/rules.h"

namespace hardware {

// Reads the probes' lines; what is no fact is left out. Adds what follows from several facts: the
// ratios of times.
Facts read_facts(std::istream& lines);

// The report as JSON, with a seal over all of it, and as a page of Markdown.
std::string report_json(const Facts& facts);
std::string report_page(const Facts& facts);

// How many verdicts are WRONG.
int wrong_verdicts(const Facts& facts);

// Reads a report. False and why when it is none, or was changed after it was made: its seal does
// not fit, or its verdicts are not those of its facts. The seal finds accidents and edits; whoever
// wants to forge a report can make another.
bool read_report(const std::string& text, Facts* facts, std::string* why);

}  // namespace hardware
